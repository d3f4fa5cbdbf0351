// Rules about fine-grained activation offload (reference 2.2); it can be planned only.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "recipe/rules.h"

namespace rr::recipe {
namespace {

constexpr const char* kFine = "model.fine_grained_activation_offloading";

bool active(const Facts& f) {
  const Model& m = f.config.model;
  return m.fine_grained_activation_offloading && m.offload_modules;
}

bool contains(const TextList& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool recomputes(const Facts& f, const char* name) {
  const Model& m = f.config.model;
  return m.recompute_granularity == "selective" && m.recompute_modules &&
         contains(*m.recompute_modules, name);
}

// Those of `names` that offload_modules has.
std::vector<std::string> offloaded(const Facts& f, std::initializer_list<const char*> names) {
  std::vector<std::string> found;
  for (const char* name : names) {
    if (active(f) && contains(*f.config.model.offload_modules, name)) found.emplace_back(name);
  }
  return found;
}

Verdict fine_grained_modules(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.fine_grained_activation_offloading) return {};
  static const std::set<std::string> kAllowed = {"core_attn",       "attn_proj",  "expert_fc1",
                                                 "fused_group_mlp", "moe_act",    "attn_norm",
                                                 "mlp_norm",        "qkv_linear", "gdp_qkv"};
  const std::string allowed = join({kAllowed.begin(), kAllowed.end()}, ", ");
  if (!m.offload_modules || m.offload_modules->empty()) {
    return Finding{"model.fine_grained_activation_offloading=true without model.offload_modules",
                   fmt::format("Name some of {}.", allowed)};
  }
  std::vector<std::string> wrong;
  bool has_projection = false, has_attention = false;
  for (const std::string& name : *m.offload_modules) {
    if (kAllowed.count(name) == 0) wrong.push_back(name);
    has_projection |= name == "attn_proj";
    has_attention |= name == "core_attn";
  }
  if (!wrong.empty()) {
    return Finding{fmt::format("Invalid choices for offload_modules: {}. Allowed modules are: {}",
                               join(wrong, ", "), allowed),
                   ""};
  }
  if (has_projection && !has_attention) {
    return Finding{"attn_proj cannot be set to offload_modules alone without core_attn",
                   "Add core_attn to model.offload_modules."};
  }
  return {};
}

Verdict fine_grained_numbers(const Facts& f) {
  const Model& m = f.config.model;
  if (m.min_offloaded_tensor_size < 0) {
    return Finding{fmt::format("min_offloaded_tensor_size must be non-negative.: it is {}",
                               m.min_offloaded_tensor_size),
                   ""};
  }
  if (!(m.activation_offload_fraction >= 0 && m.activation_offload_fraction <= 1)) {
    return Finding{fmt::format("activation_offload_fraction must be in range [0, 1].: it is {}",
                               f.value("model.activation_offload_fraction")),
                   ""};
  }
  if (m.delta_offload_bytes_across_pp_ranks < 0) {
    return Finding{
        fmt::format("delta_offload_bytes_across_pp_ranks must be non-negative.: it is {}",
                    m.delta_offload_bytes_across_pp_ranks),
        ""};
  }
  return {};
}

Verdict recomputed_modules(const Facts& f) {
  const std::vector<std::string> experts =
      offloaded(f, {"moe_act", "expert_fc1", "fused_group_mlp"});
  if (!experts.empty() && recomputes(f, "moe")) {
    return Finding{fmt::format("Cannot offload {} while recomputing the entire MoE layer.",
                               join(experts, ", ")),
                   "Take moe out of model.recompute_modules."};
  }
  if (!offloaded(f, {"gdp_qkv"}).empty() && recomputes(f, "gdp_in_proj")) {
    return Finding{
        "gdp_qkv cannot be set in offload_modules together with gdp_in_proj in "
        "model.recompute_modules",
        "Keep one of them."};
  }
  if (active(f) && recomputes(f, "mhc")) {
    return Finding{
        "'mhc' in recompute_modules + fine_grained_activation_offloading is not yet "
        "supported.",
        "Take mhc out of model.recompute_modules."};
  }
  return {};
}

Verdict fused_experts(const Facts& f) {
  const Model& m = f.config.model;
  const std::vector<std::string> parts = offloaded(f, {"expert_fc1", "moe_act"});
  const std::vector<std::string> any = offloaded(f, {"expert_fc1", "moe_act", "fused_group_mlp"});
  if (m.moe_paged_stash && !any.empty()) {
    return Finding{fmt::format("When moe_paged_stash is enabled, offload_modules must not include "
                               "{}",
                               join(any, ", ")),
                   "Use model.moe_paged_stash=false."};
  }
  if (offloaded(f, {"fused_group_mlp"}).empty()) return {};
  if (!m.use_transformer_engine_op_fuser) {
    return Finding{"fused_group_mlp requires use_transformer_engine_op_fuser.",
                   "Use model.use_transformer_engine_op_fuser=true."};
  }
  if (parts.empty()) return {};
  return Finding{fmt::format("fused_group_mlp cannot be combined with expert_fc1 or moe_act. "
                             "Remove: {}",
                             join(parts, ", ")),
                 "fused_group_mlp holds them."};
}

Verdict graphs(const Facts& f) {
  const Model& m = f.config.model;
  if (!active(f) || m.cuda_graph_impl == "none") return {};
  if (m.cuda_graph_impl == "local") {
    const std::size_t good = offloaded(f, {"expert_fc1", "moe_act", "fused_group_mlp"}).size();
    if (good < m.offload_modules->size()) {
      return Finding{
          "fine-grained activation offloading with cuda_graph_impl='local' only supports "
          "offload_modules expert_fc1, moe_act and fused_group_mlp",
          "Use model.cuda_graph_impl=transformer_engine or none."};
    }
    if (m.cuda_graph_modules.empty()) {
      return Finding{
          "fine-grained activation offloading is not supported with whole-layer CUDA "
          "graph capture.: model.cuda_graph_modules is empty",
          "Name the captured modules."};
    }
  }
  if (contains(m.cuda_graph_modules, "moe")) {
    return Finding{
        "Token-drop MoE is temporarily not supported with activation offloading.: "
        "model.cuda_graph_modules has moe",
        "Use moe_router."};
  }
  if (m.cuda_graph_warmup_steps == 0) {
    return Finding{
        "cuda_graph_warmup_steps must be greater than 0 with fine-grained activation "
        "offloading",
        "Use model.cuda_graph_warmup_steps=1 or more."};
  }
  const auto inflight = m.fine_grained_offloading_max_inflight_offloads;
  if (m.cuda_graph_impl == "full_iteration" && inflight.value_or(-1) < 0) {
    return Finding{fmt::format("fine_grained_offloading_max_inflight_offloads must be a "
                               "non-negative integer with a full-iteration CUDA graph: it is {}",
                               f.value("model.fine_grained_offloading_max_inflight_offloads")),
                   "Use 1."};
  }
  return {};
}

Verdict dispatch(const Facts& f) {
  const Model& m = f.config.model;
  if (offloaded(f, {"expert_fc1"}).empty() || !m.overlap_moe_expert_parallel_comm ||
      m.moe_flex_dispatcher_backend != "ncclep") {
    return {};
  }
  return Finding{
      "overlap_moe_expert_parallel_comm with ncclep does not support offloading "
      "expert_fc1",
      "Take expert_fc1 out of model.offload_modules."};
}

Verdict implementation(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.fine_grained_activation_offloading || m.transformer_impl == "transformer_engine")
    return {};
  return Finding{fmt::format("Fine-grained activation offloading is only supported with "
                             "transformer_engine implementation.: model.transformer_impl={}",
                             m.transformer_impl),
                 "Use model.transformer_impl=transformer_engine."};
}

}  // namespace

const std::vector<Rule>& fine_grained_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr const char* kModules = "model.offload_modules";
  static const std::vector<Rule> rules = {
      {kError,
       {kModules, kFine},
       "offload_modules names modules of fine-grained offload",
       fine_grained_modules},
      {kError,
       {"model.min_offloaded_tensor_size", "model.activation_offload_fraction",
        "model.delta_offload_bytes_across_pp_ranks"},
       "sizes of fine-grained offload are not negative and the fraction is in [0, 1]",
       fine_grained_numbers},
      {kError,
       {kModules, "model.recompute_modules", kFine},
       "what is recomputed is not offloaded",
       recomputed_modules},
      {kError,
       {kModules, "model.use_transformer_engine_op_fuser", "model.moe_paged_stash"},
       "the experts are offloaded whole or in parts",
       fused_experts},
      {kError,
       {kFine, kModules, "model.cuda_graph_impl", "model.cuda_graph_modules",
        "model.cuda_graph_warmup_steps", "model.fine_grained_offloading_max_inflight_offloads"},
       "fine-grained offload fits the CUDA graphs",
       graphs},
      {kError,
       {kModules, "model.overlap_moe_expert_parallel_comm", "model.moe_flex_dispatcher_backend"},
       "ncclep overlap excludes offloading expert_fc1",
       dispatch},
      {kError,
       {kFine, "model.transformer_impl"},
       "fine-grained offload needs Transformer Engine layers",
       implementation},
  };
  return rules;
}

}  // namespace rr::recipe
