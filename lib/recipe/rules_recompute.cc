// Rules about recompute, CUDA graphs and deterministic mode (reference 2.6 - 2.8).
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "recipe/rules.h"

namespace rr::recipe {
namespace {

bool contains(const std::optional<TextList>& list, const char* name) {
  return list && std::find(list->begin(), list->end(), name) != list->end();
}
bool contains(const TextList& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

Verdict granularity(const Facts& f) {
  const auto& value = f.config.model.recompute_granularity;
  if (!value || *value == "full" || *value == "selective") return {};
  return Finding{fmt::format("When using recompute_granuarlity: {} recompute_granularity must be "
                             "\"full\" or \"selective\".",
                             *value),
                 "Use full, selective or null."};
}

Verdict full_recompute(const Facts& f) {
  const Model& m = f.config.model;
  if (m.recompute_granularity != "full") return {};
  if (!m.recompute_method) {
    return Finding{
        "Using recompute_granularity: full so recompute_method must be \"block\" or "
        "\"uniform\": model.recompute_method=null",
        "Use model.recompute_method=uniform."};
  }
  const std::int64_t per_stage =
      std::max<std::int64_t>(1, m.num_layers / m.pipeline_model_parallel_size);
  const auto layers = m.recompute_num_layers;
  if (layers && *layers >= 1 && *layers <= per_stage) return {};
  return Finding{fmt::format("recompute_num_layers must be between 1 and "
                             "num_layers_per_pipeline_rank: {}: it is {}",
                             per_stage, f.value("model.recompute_num_layers")),
                 "Use model.recompute_num_layers=1."};
}

Verdict selective_recompute(const Facts& f) {
  const Model& m = f.config.model;
  if (m.recompute_granularity != "selective" || !m.recompute_num_layers) return {};
  return Finding{
      "recompute_num_layers must be None. with selective recompute: "
      "model.recompute_num_layers=" +
          f.value("model.recompute_num_layers"),
      "Use model.recompute_num_layers=null."};
}

Verdict modules(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.recompute_modules) return {};
  static const std::set<std::string> kAllowed = {
      "core_attn",      "moe_act",      "layernorm",   "mla_up_proj", "mlp", "moe",
      "shared_experts", "gdn_norm_out", "gdp_in_proj", "gdp_qkv",     "mhc"};
  std::vector<std::string> wrong;
  for (const std::string& name : *m.recompute_modules) {
    if (kAllowed.count(name) == 0) wrong.push_back(name);
  }
  if (!wrong.empty()) {
    return Finding{fmt::format("Invalid choices for recompute_modules: {}", join(wrong, ", ")),
                   fmt::format("Allowed are {}.", join({kAllowed.begin(), kAllowed.end()}, ", "))};
  }
  if (contains(m.recompute_modules, "moe_act") && !m.moe_grouped_gemm) {
    return Finding{"moe_act in recompute_modules is only supported with moe_grouped_gemm",
                   "Use model.moe_grouped_gemm=true."};
  }
  if (contains(m.recompute_modules, "mla_up_proj") && !m.multi_latent_attention) {
    return Finding{"mla_up_proj in recompute_modules is only supported with multi_latent_attention",
                   ""};
  }
  const bool quantised =
      contains(m.recompute_modules, "moe_act") || contains(m.recompute_modules, "layernorm");
  if (quantised && m.fp8 && m.fp8_recipe == "delayed") {
    return Finding{
        "moe_act and layernorm in recompute_modules do not work with delayed fp8 scaling: "
        "model.fp8_recipe=delayed",
        "Use another model.fp8_recipe."};
  }
  if (contains(m.recompute_modules, "shared_experts") && m.moe_shared_expert_overlap) {
    return Finding{"shared_experts recompute cannot work with --moe-shared-expert-overlap.",
                   "Use model.moe_shared_expert_overlap=false."};
  }
  return {};
}

Verdict distribute_saved(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.distribute_saved_activations || !m.sequence_parallel) return {};
  return Finding{
      "distribute_saved_activations: true must be false when sequence parallel is enabled",
      "Use model.distribute_saved_activations=false."};
}

Verdict graph_recompute(const Facts& f) {
  const Model& m = f.config.model;
  const bool partial = m.cuda_graph_impl == "local" || m.cuda_graph_impl == "transformer_engine";
  if (!partial || m.recompute_granularity != "full") return {};
  return Finding{"full recompute is only supported with full iteration CUDA graph.",
                 "Use model.cuda_graph_impl=full_iteration or none."};
}

Verdict graph_modules(const Facts& f) {
  const Model& m = f.config.model;
  const TextList& names = m.cuda_graph_modules;
  if (m.cuda_graph_impl == "none") return {};
  if (m.cuda_graph_impl == "full_iteration" && !names.empty()) {
    return Finding{"cuda_graph_modules must be empty when cuda_graph_impl=\"full_iteration\".", ""};
  }
  if (contains(names, "moe") && contains(names, "moe_router")) {
    return Finding{"cuda_graph_modules must not contain both moe and moe_router.", ""};
  }
  if (contains(names, "moe_preprocess") && !contains(names, "moe_router")) {
    return Finding{"moe_preprocess cuda graph is only supported with moe_router cuda graph.",
                   "Add moe_router."};
  }
  const std::vector<std::int64_t>& pattern = m.moe_layer_freq.list;
  const bool all_experts =
      m.num_moe_experts &&
      (pattern.empty() ? m.moe_layer_freq.period == 1
                       : std::find(pattern.begin(), pattern.end(), 0) == pattern.end());
  if (contains(names, "mlp") && all_experts) {
    return Finding{"mlp cuda graph is only supported for dense layers, and this model has none.",
                   "Take mlp out of model.cuda_graph_modules."};
  }
  if (contains(names, "moe") && !m.moe_pad_expert_input_to_capacity) {
    return Finding{"moe cuda graph is only supported with drop-padding MoE.", ""};
  }
  return {};
}

Verdict graph_nan_check(const Facts& f) {
  const bool full = f.config.model.cuda_graph_impl == "full_iteration";
  if (!full || !f.config.rerun_state_machine.check_for_nan_in_loss) return {};
  return Finding{"check_for_nan_in_loss must be disabled when using full_iteration CUDA graph",
                 "Use rerun_state_machine.check_for_nan_in_loss=false."};
}

Verdict graph_random(const Facts& f) {
  const Model& m = f.config.model;
  if (m.cuda_graph_impl == "none" || m.use_te_rng_tracker || f.config.rng.te_rng_tracker) return {};
  return Finding{"Transformer engine's RNG tracker is required for cudagraphs",
                 "Use model.use_te_rng_tracker=true and rng.te_rng_tracker=true."};
}

Verdict deterministic_loss(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.deterministic_mode || !m.cross_entropy_loss_fusion ||
      !f.is_set("model.cross_entropy_loss_fusion")) {
    return {};
  }
  return Finding{"Cross Entropy Fusion is currently not deterministic.",
                 "Use model.cross_entropy_loss_fusion=false."};
}

}  // namespace

const std::vector<Rule>& recompute_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr const char* kGranularity = "model.recompute_granularity";
  static constexpr const char* kGraphs = "model.cuda_graph_impl";
  static const std::vector<Rule> rules = {
      {kError, {kGranularity}, "recompute is full, selective or off", granularity},
      {kError,
       {kGranularity, "model.recompute_method", "model.recompute_num_layers"},
       "full recompute has a method and layers",
       full_recompute},
      {kError,
       {"model.recompute_num_layers", kGranularity},
       "selective recompute has no layer count",
       selective_recompute},
      {kError,
       {"model.recompute_modules", kGranularity},
       "recompute_modules names modules",
       modules},
      {kError,
       {"model.distribute_saved_activations", "model.sequence_parallel"},
       "saved activations are split once",
       distribute_saved},
      {kError,
       {kGraphs, kGranularity},
       "full recompute needs a full-iteration graph",
       graph_recompute},
      {kError, {"model.cuda_graph_modules", kGraphs}, "graph modules fit together", graph_modules},
      {kError,
       {"rerun_state_machine.check_for_nan_in_loss", kGraphs},
       "a full-iteration graph cannot look at the loss",
       graph_nan_check},
      {kError,
       {"model.use_te_rng_tracker", "rng.te_rng_tracker", kGraphs},
       "graphs need their random state",
       graph_random},
      {kError,
       {"model.deterministic_mode", "model.cross_entropy_loss_fusion"},
       "deterministic mode excludes the fused loss",
       deterministic_loss},
  };
  return rules;
}

}  // namespace rr::recipe
