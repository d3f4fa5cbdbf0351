// Rules about mixture-of-experts layers (reference 2.5).
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "recipe/rules.h"

namespace rr::recipe {
namespace {

constexpr std::int64_t kMostExperts = 1 << 20;

bool has_experts(const Facts& f) { return f.config.model.num_moe_experts.value_or(0) > 0; }

Verdict experts_needed(const Facts& f) {
  const Model& m = f.config.model;
  if (m.expert_model_parallel_size == 1 || m.num_moe_experts) return {};
  return Finding{fmt::format("num_moe_experts must be non None to use expert-parallel.: "
                             "model.expert_model_parallel_size={}",
                             m.expert_model_parallel_size),
                 "Use model.expert_model_parallel_size=1 or set model.num_moe_experts."};
}

Verdict experts_positive(const Facts& f) {
  const auto experts = f.config.model.num_moe_experts;
  if (!experts || (*experts > 0 && *experts <= kMostExperts)) return {};
  if (*experts > 0) {
    return Finding{fmt::format("num_moe_experts={} is more than {}", *experts, kMostExperts), ""};
  }
  return Finding{
      fmt::format("num_moe_experts must be non-negative.: it is {}, and a dense model has "
                  "null",
                  *experts),
      "Use model.num_moe_experts=null."};
}

Verdict experts_divide(const Facts& f) {
  const Model& m = f.config.model;
  if (!has_experts(f) || *m.num_moe_experts % m.expert_model_parallel_size == 0) return {};
  std::vector<std::string> good;
  for (std::int64_t n = 1; n <= *m.num_moe_experts && n <= 4096; ++n) {
    if (*m.num_moe_experts % n == 0) good.push_back(fmt::format("{}", n));
  }
  return Finding{
      fmt::format("num_moe_experts ({}) must be a multiple of expert_model_parallel_size "
                  "({})",
                  *m.num_moe_experts, m.expert_model_parallel_size),
      fmt::format("Expert parallel sizes that fit: {}.", join(good, ", "))};
}

Verdict topk_fits(const Facts& f) {
  const Model& m = f.config.model;
  if (!has_experts(f) || m.moe_router_topk <= *m.num_moe_experts) return {};
  return Finding{fmt::format("model.moe_router_topk ({}) is more than model.num_moe_experts ({})",
                             m.moe_router_topk, *m.num_moe_experts),
                 fmt::format("Use at most {}.", *m.num_moe_experts)};
}

Verdict topk_one(const Facts& f) {
  const Model& m = f.config.model;
  if (!has_experts(f) || m.moe_router_topk != 1 || m.moe_router_pre_softmax ||
      m.moe_router_score_function != "softmax") {
    return {};
  }
  return Finding{
      "Please use --moe-router-pre-softmax when topk is 1.: a softmax over one value is "
      "always 1",
      "Use model.moe_router_pre_softmax=true."};
}

Verdict layer_pattern(const Facts& f) {
  const Model& m = f.config.model;
  const auto given = static_cast<std::int64_t>(m.moe_layer_freq.list.size());
  if (given == 0 || given == m.num_layers) return {};
  return Finding{fmt::format("model.moe_layer_freq lists {} layers, model.num_layers is {}", given,
                             m.num_layers),
                 "Give one 0 or 1 per layer."};
}

Verdict expert_bias(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.moe_router_enable_expert_bias || m.moe_router_score_function != "softmax") return {};
  return Finding{
      "Expert bias for aux-loss-free routing only supports 'sigmoid' and 'sqrtsoftplus' score "
      "functions: model.moe_router_score_function=softmax",
      "Use model.moe_router_score_function=sigmoid."};
}

Verdict capacity(const Facts& f) {
  const Model& m = f.config.model;
  if (m.moe_pad_expert_input_to_capacity && !m.moe_expert_capacity_factor) {
    return Finding{"moe_expert_capacity_factor must be set to use moe_pad_expert_input_to_capacity",
                   "Set model.moe_expert_capacity_factor."};
  }
  const std::string& type = m.moe_router_load_balancing_type;
  if (m.moe_expert_capacity_factor && (type == "sinkhorn" || type == "quantile_balancing")) {
    return Finding{fmt::format("moe_expert_capacity_factor only works with aux_loss, seq_aux_loss, "
                               "global_aux_loss or none load balancing: it is {}",
                               type),
                   ""};
  }
  return {};
}

Verdict rank_capacity(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.moe_expert_rank_capacity_factor || m.moe_flex_dispatcher_backend != "deepep") return {};
  return Finding{
      "moe_expert_rank_capacity_factor requires moe_flex_dispatcher_backend to be "
      "'hybridep' or 'ncclep'.",
      ""};
}

Verdict group_routing(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.moe_router_num_groups || !has_experts(f)) return {};
  const std::int64_t groups = *m.moe_router_num_groups;
  const std::int64_t chosen = m.moe_router_group_topk.value_or(groups);
  if (*m.num_moe_experts % groups == 0 && chosen <= groups && m.moe_router_topk % chosen == 0) {
    return {};
  }
  return Finding{
      fmt::format("group-limited routing: {} experts in {} groups of which {} are used for "
                  "top-{} does not come out even",
                  *m.num_moe_experts, groups, chosen, m.moe_router_topk),
      ""};
}

Verdict expert_bias_tensor(const Facts& f) {
  const Model& m = f.config.model;
  if (!has_experts(f) || !m.add_bias_linear || m.expert_tensor_parallel_size.value_or(1) == 1) {
    return {};
  }
  return Finding{fmt::format("Bias in Moe is only supported when ETP==1: "
                             "model.expert_tensor_parallel_size={}",
                             *m.expert_tensor_parallel_size),
                 "Use model.add_bias_linear=false."};
}

Verdict shared_overlap(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.moe_shared_expert_overlap || m.moe_token_dispatcher_type != "allgather") return {};
  return Finding{"moe_shared_expert_overlap only works with alltoall or flex token dispatcher.",
                 "Use model.moe_token_dispatcher_type=alltoall."};
}

Verdict expert_overlap(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.overlap_moe_expert_parallel_comm) return {};
  if (m.expert_model_parallel_size == 1 || m.num_moe_experts.value_or(0) < 2) {
    return Finding{"overlap_moe_expert_parallel_comm needs expert parallelism and several experts",
                   "Switch it off."};
  }
  if (m.moe_token_dispatcher_type == "allgather") {
    return Finding{"overlap_moe_expert_parallel_comm needs the alltoall or flex dispatcher",
                   "Use model.moe_token_dispatcher_type=alltoall."};
  }
  if (m.pipeline_model_parallel_size > 1 && !m.virtual_pipeline_model_parallel_size) {
    return Finding{
        "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified when "
        "pipeline_model_parallel_size > 1",
        "Set model.virtual_pipeline_model_parallel_size."};
  }
  if (f.config.mixed_precision == "fp32") {
    return Finding{"overlap_moe_expert_parallel_comm needs bf16 or fp16: mixed_precision=fp32",
                   "Use mixed_precision=bf16_mixed."};
  }
  const TextList recomputed = m.recompute_modules.value_or(TextList{});
  const bool moe = m.recompute_granularity == "selective" &&
                   std::find(recomputed.begin(), recomputed.end(), "moe") != recomputed.end();
  if (m.recompute_granularity == "full" || moe || m.moe_shared_expert_overlap) {
    return Finding{
        "overlap_moe_expert_parallel_comm excludes full recompute, recompute of moe and "
        "moe_shared_expert_overlap",
        ""};
  }
  if (m.mtp_num_layers.value_or(0) > 1) {
    return Finding{fmt::format("overlap_moe_expert_parallel_comm supports one multi-token "
                               "prediction layer: model.mtp_num_layers={}",
                               *m.mtp_num_layers),
                   "Use model.mtp_num_layers=1."};
  }
  return {};
}

Verdict unused_aux_loss(const Facts& f) {
  const Model& m = f.config.model;
  if (!has_experts(f) || m.moe_router_load_balancing_type != "none" || m.moe_aux_loss_coeff == 0) {
    return {};
  }
  return Finding{fmt::format("model.moe_aux_loss_coeff={} does nothing while "
                             "model.moe_router_load_balancing_type=none",
                             m.moe_aux_loss_coeff),
                 "Use aux_loss."};
}

Verdict experts_unused(const Facts& f) {
  if (has_experts(f)) return {};
  for (const char* key : {"model.moe_router_topk", "model.moe_aux_loss_coeff",
                          "model.moe_ffn_hidden_size", "model.moe_z_loss_coeff"}) {
    if (f.is_set(key) && f.value(key) != find_slot(key)->field.initial) {
      return Finding{fmt::format("{} does nothing in a dense model", f.show(key)),
                     "Set model.num_moe_experts."};
    }
  }
  return {};
}

}  // namespace

const std::vector<Rule>& moe_rules() {
  static constexpr auto kError = Severity::error;
  static constexpr auto kWarning = Severity::warning;
  static constexpr const char* kExperts = "model.num_moe_experts";
  static constexpr const char* kEp = "model.expert_model_parallel_size";
  static constexpr const char* kTopk = "model.moe_router_topk";
  static constexpr const char* kDispatcher = "model.moe_token_dispatcher_type";
  static const std::vector<Rule> rules = {
      {kError, {kEp, kExperts}, "expert parallelism needs experts", experts_needed},
      {kError, {kExperts}, "the number of experts is positive", experts_positive},
      {kError, {kEp, kExperts}, "EP divides the experts", experts_divide},
      {kError, {kTopk, kExperts}, "top-k is at most the number of experts", topk_fits},
      {kError, {kTopk, "model.moe_router_pre_softmax"}, "top-1 needs the softmax before", topk_one},
      {kError,
       {"model.moe_layer_freq", "model.num_layers"},
       "a layer list has an entry per layer",
       layer_pattern},
      {kError,
       {"model.moe_router_enable_expert_bias", "model.moe_router_score_function"},
       "expert bias needs sigmoid scores",
       expert_bias},
      {kError,
       {"model.moe_expert_capacity_factor", "model.moe_pad_expert_input_to_capacity",
        "model.moe_router_load_balancing_type"},
       "capacity goes with auxiliary-loss balancing",
       capacity},
      {kError,
       {"model.moe_expert_rank_capacity_factor", "model.moe_flex_dispatcher_backend"},
       "rank capacity needs hybridep or ncclep",
       rank_capacity},
      {kError,
       {"model.moe_router_num_groups", "model.moe_router_group_topk", kTopk},
       "group-limited routing comes out even",
       group_routing},
      {kError,
       {"model.add_bias_linear", "model.expert_tensor_parallel_size"},
       "expert bias needs ETP 1",
       expert_bias_tensor},
      {kError,
       {"model.moe_shared_expert_overlap", kDispatcher},
       "shared-expert overlap needs alltoall or flex",
       shared_overlap},
      {kError,
       {"model.overlap_moe_expert_parallel_comm", kEp, kDispatcher},
       "dispatch overlap has what it needs",
       expert_overlap},
      {kWarning,
       {"model.moe_aux_loss_coeff", "model.moe_router_load_balancing_type"},
       "an auxiliary loss needs its balancing type",
       unused_aux_loss},
      {kWarning,
       {kTopk, "model.moe_aux_loss_coeff", "model.moe_ffn_hidden_size", kExperts},
       "expert settings need experts",
       experts_unused},
  };
  return rules;
}

}  // namespace rr::recipe
