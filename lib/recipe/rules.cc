// Runs the tables of rules, and the generic rules about plan-only keys and keys without effect.
#include "recipe/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace rr::recipe {
namespace {

bool touches_refused(const Facts& facts, const Rule& rule) {
  return std::any_of(rule.keys.begin(), rule.keys.end(),
                     [&facts](const char* key) { return facts.refused.count(key) > 0; });
}

// The key a problem is about: the first one that a person set, so that the place helps.
const char* blamed(const Facts& facts, const Rule& rule) {
  for (const char* key : rule.keys) {
    if (facts.is_set(key)) return key;
  }
  return rule.keys.front();
}

bool is_initial(const Slot& slot, const Config& config) {
  return yaml_line(to_node(slot, config)) == slot.field.initial;
}

// Settings of a feature that is switched by another key: that key is the one to refuse.
struct Detail {
  const char* key;  // or the beginning of several keys, ending in *
  const char* feature;
};
constexpr Detail kDetails[] = {
    {"model.recompute_*", "model.recompute_granularity"},
    {"model.distribute_saved_activations", "model.recompute_granularity"},
    {"model.cuda_graph_*", "model.cuda_graph_impl"},
    {"model.yarn_*", "model.position_embedding_type"},
    {"model.offload_modules", "model.fine_grained_activation_offloading"},
    {"model.activation_offload_fraction", "model.fine_grained_activation_offloading"},
    {"model.delta_offload_bytes_across_pp_ranks", "model.fine_grained_activation_offloading"},
    {"model.delay_offload_until_cuda_graph", "model.fine_grained_activation_offloading"},
    {"model.fine_grained_offloading_*", "model.fine_grained_activation_offloading"},
    {"model.q_lora_rank", "model.multi_latent_attention"},
    {"model.kv_lora_rank", "model.multi_latent_attention"},
    {"model.qk_head_dim", "model.multi_latent_attention"},
    {"model.qk_pos_emb_head_dim", "model.multi_latent_attention"},
    {"model.v_head_dim", "model.multi_latent_attention"},
    {"model.mtp_loss_scaling_factor", "model.mtp_num_layers"},
    {"model.window_attn_skip_freq", "model.window_size"},
    {"model.moe_shared_expert_*", "model.moe_shared_expert_intermediate_size"},
    {"model.moe_router_group_topk", "model.moe_router_num_groups"},
    {"model.moe_router_bias_update_rate", "model.moe_router_enable_expert_bias"},
    {"model.moe_paged_stash_*", "model.moe_paged_stash"},
    {"model.moe_pad_expert_input_to_capacity", "model.moe_expert_capacity_factor"},
    {"model.moe_token_drop_policy", "model.moe_expert_capacity_factor"},
    {"model.fp8_recipe", "model.fp8"},
    {"model.fp8_param", "model.fp8"},
    {"model.wgrad_deferral_limit", "model.defer_embedding_wgrad_compute"},
    {"model.microbatch_group_size_per_vp_stage", "model.virtual_pipeline_model_parallel_size"},
    {"optimizer.exp_avg*", "optimizer.use_precision_aware_optimizer"},
    {"optimizer.main_*", "optimizer.use_precision_aware_optimizer"},
    {"optimizer.store_param_remainders", "optimizer.use_precision_aware_optimizer"},
    {"optimizer.initial_loss_scale", "mixed_precision"},
    {"optimizer.min_loss_scale", "mixed_precision"},
    {"optimizer.loss_scale_window", "mixed_precision"},
    {"optimizer.hysteresis", "mixed_precision"},
    {"optimizer.sgd_momentum", "optimizer.optimizer"},
    {"optimizer.decoupled_min_lr", "optimizer.decoupled_lr"},
    {"optimizer.optimizer_state_offload_*", "optimizer.chunked_optimizer_state_offload"},
    {"ddp.data_parallel_sharding_strategy", "ddp.use_megatron_fsdp"},
    {"rerun_state_machine.error_injection_type", "rerun_state_machine.error_injection_rate"},
    {"peft.*", "peft.scheme"},
};

bool is_detail(const std::string& key) {
  return std::any_of(std::begin(kDetails), std::end(kDetails), [&key](const Detail& detail) {
    if (key == detail.feature) return false;
    const std::string_view name = detail.key;
    return name.back() == '*' ? key.rfind(name.substr(0, name.size() - 1), 0) == 0 : key == name;
  });
}

void check_plan_only(Facts& facts, std::vector<Problem>* problems) {
  for (const Slot& slot : slots()) {
    const std::string& key = slot.field.key;
    if (slot.field.support != Support::plan_only || is_initial(slot, facts.config)) continue;
    if (is_detail(key)) continue;
    // What merely follows from something else is said there.
    if (facts.origin(key) == OriginKind::derived) continue;
    problems->push_back({Severity::plan_only, key, facts.where(key),
                         fmt::format("{} can be planned but not run yet", facts.show(key)),
                         fmt::format("Use {}={}.", key, slot.field.initial)});
  }
}

// One warning for all keys that a recipe file carries, so that recipes of the reference stay
// readable; one each for those set for this run.
void check_no_effect(Facts& facts, std::vector<Problem>* problems) {
  std::vector<std::string> in_file;
  std::string where;
  for (const Slot& slot : slots()) {
    const std::string& key = slot.field.key;
    if (slot.field.support != Support::no_effect || !facts.is_set(key) ||
        is_initial(slot, facts.config)) {
      continue;
    }
    if (facts.origin(key) == OriginKind::recipe) {
      if (in_file.empty()) where = facts.where(key);
      in_file.push_back(key);
    } else {
      problems->push_back(
          {Severity::warning, key, facts.where(key),
           fmt::format("{} has no effect here: {}", facts.show(key), slot.field.meaning), ""});
    }
  }
  if (!in_file.empty()) {
    problems->push_back({Severity::warning, in_file.front(), where,
                         fmt::format("these keys have no effect here: {}", join(in_file, ", ")),
                         ""});
  }
}

}  // namespace

std::vector<const Rule*> all_rules() {
  std::vector<const Rule*> all;
  for (const auto* table :
       {&model_rules(), &parallel_rules(), &batch_rules(), &moe_rules(), &offload_rules(),
        &fine_grained_rules(), &optimizer_rules(), &recompute_rules(), &run_rules()}) {
    for (const Rule& rule : *table) all.push_back(&rule);
  }
  return all;
}

void check_rules(Facts& facts, std::vector<Problem>* problems) {
  for (const Rule* rule : all_rules()) {
    if (touches_refused(facts, *rule)) continue;
    if (Verdict verdict = rule->check(facts)) {
      const char* key = blamed(facts, *rule);
      problems->push_back({rule->severity, key, facts.where(key), std::move(verdict->what),
                           std::move(verdict->remedy)});
    }
  }
  check_plan_only(facts, problems);
  check_no_effect(facts, problems);
}

std::vector<std::string> rules_about(const std::string& key) {
  std::vector<std::string> texts;
  for (const Rule* rule : all_rules()) {
    for (const char* named : rule->keys) {
      if (key == named) {
        texts.emplace_back(rule->summary);
        break;
      }
    }
  }
  return texts;
}

}  // namespace rr::recipe
