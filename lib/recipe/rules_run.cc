// What can be planned but not run yet, by value (keys that never run stand in fields.def).
#include <fmt/format.h>

#include <initializer_list>

#include "recipe/rules.h"

namespace rr::recipe {
namespace {

// `key` runs with one of `values` only.
Verdict runs_with(const Facts& f, const char* key, std::initializer_list<const char*> values,
                  const char* remedy) {
  const std::string value = f.value(key);
  for (const char* good : values) {
    if (value == good) return {};
  }
  return Finding{fmt::format("{} can be planned but not run yet", f.show(key)), remedy};
}

bool has_experts(const Facts& f) { return f.config.model.num_moe_experts.value_or(0) > 0; }

Verdict document_ends(const Facts& f) {
  const Dataset& d = f.config.dataset;
  const std::string& type = f.config.tokenizer.tokenizer_type;
  if (!d.reset_position_ids && !d.reset_attention_mask && !d.eod_mask_loss) return {};
  if (type == "ByteTokenizer" || type == "NullTokenizer") return {};
  return Finding{
      fmt::format("reset_position_ids, reset_attention_mask and eod_mask_loss need to know which "
                  "token ends a document, which tokenizer.tokenizer_type={} does not tell here; "
                  "this can be planned but not run yet",
                  type),
      "Use tokenizer.tokenizer_type=NullTokenizer with tokenizer.null_tokenizer_eod_id."};
}

}  // namespace

const std::vector<Rule>& run_rules() {
  static constexpr auto kPlan = Severity::plan_only;
  static const std::vector<Rule> rules = {
      {kPlan,
       {"model.tensor_model_parallel_size"},
       "tensor parallelism cannot run yet",
       [](const Facts& f) {
         return runs_with(f, "model.tensor_model_parallel_size", {"1"},
                          "Use pipeline, expert or data parallelism and "
                          "model.tensor_model_parallel_size=1.");
       }},
      {kPlan,
       {"model.context_parallel_size"},
       "context parallelism cannot run yet",
       [](const Facts& f) {
         return runs_with(f, "model.context_parallel_size", {"1"},
                          "Use a shorter sequence and model.context_parallel_size=1.");
       }},
      {kPlan,
       {"model.expert_tensor_parallel_size"},
       "expert tensor parallelism cannot run yet",
       [](const Facts& f) -> Verdict {
         if (f.config.model.tensor_model_parallel_size > 1) return {};
         return runs_with(f, "model.expert_tensor_parallel_size", {"1", "null"},
                          "Use model.expert_tensor_parallel_size=1.");
       }},
      {kPlan,
       {"mixed_precision"},
       "fp32 and bf16_mixed run",
       [](const Facts& f) {
         return runs_with(f, "mixed_precision", {"fp32", "bf16_mixed"},
                          "Use mixed_precision=bf16_mixed.");
       }},
      {kPlan,
       {"ddp.grad_reduce_in_fp32"},
       "gradients are reduced in fp32",
       [](const Facts& f) -> Verdict {
         if (f.config.mixed_precision == "fp32") return {};
         return runs_with(f, "ddp.grad_reduce_in_fp32", {"true"},
                          "Use ddp.grad_reduce_in_fp32=true.");
       }},
      {kPlan,
       {"model.qk_layernorm", "model.normalization"},
       "queries and keys are normalised by their root mean square",
       [](const Facts& f) -> Verdict {
         const Model& m = f.config.model;
         if (!m.qk_layernorm || m.normalization == "RMSNorm") return {};
         return Finding{fmt::format("model.qk_layernorm=true with model.normalization={} can be "
                                    "planned but not run yet",
                                    m.normalization),
                        "Use model.normalization=RMSNorm or model.qk_layernorm=false."};
       }},
      {kPlan,
       {"model.position_embedding_type"},
       "rotary positions and none run",
       [](const Facts& f) {
         return runs_with(f, "model.position_embedding_type", {"rope", "none"},
                          "Use model.position_embedding_type=rope.");
       }},
      {kPlan,
       {"model.attention_dropout"},
       "attention dropout cannot run yet",
       [](const Facts& f) {
         return runs_with(f, "model.attention_dropout", {"0"}, "Use model.attention_dropout=0.");
       }},
      {kPlan,
       {"model.hidden_dropout"},
       "hidden dropout cannot run yet",
       [](const Facts& f) {
         return runs_with(f, "model.hidden_dropout", {"0"}, "Use model.hidden_dropout=0.");
       }},
      {kPlan,
       {"model.activation_func"},
       "gelu and silu run",
       [](const Facts& f) {
         return runs_with(f, "model.activation_func", {"gelu", "silu"},
                          "Use model.activation_func=silu.");
       }},
      {kPlan,
       {"model.moe_router_score_function"},
       "softmax scores run",
       [](const Facts& f) {
         return runs_with(f, "model.moe_router_score_function", {"softmax"},
                          "Use model.moe_router_score_function=softmax.");
       }},
      {kPlan,
       {"model.moe_router_load_balancing_type"},
       "aux_loss and none run",
       [](const Facts& f) {
         return runs_with(f, "model.moe_router_load_balancing_type", {"aux_loss", "none"},
                          "Use model.moe_router_load_balancing_type=aux_loss.");
       }},
      {kPlan,
       {"model.moe_router_dtype"},
       "router scores are computed in fp32 at most",
       [](const Facts& f) {
         return runs_with(f, "model.moe_router_dtype", {"null", "fp32"},
                          "Use model.moe_router_dtype=fp32.");
       }},
      {kPlan,
       {"model.moe_token_dispatcher_type", "model.expert_model_parallel_size"},
       "the alltoall dispatcher runs",
       [](const Facts& f) -> Verdict {
         const bool spread = f.config.model.expert_model_parallel_size > 1;
         const std::string& type = f.config.model.moe_token_dispatcher_type;
         if (!has_experts(f) || type == "alltoall" || (type == "allgather" && !spread)) return {};
         return runs_with(f, "model.moe_token_dispatcher_type", {},
                          "Use model.moe_token_dispatcher_type=alltoall.");
       }},
      {kPlan,
       {"model.add_bias_linear", "model.num_moe_experts"},
       "experts run without bias",
       [](const Facts& f) -> Verdict {
         if (!has_experts(f)) return {};
         return runs_with(f, "model.add_bias_linear", {"false"},
                          "Use model.add_bias_linear=false.");
       }},
      {kPlan,
       {"optimizer.optimizer"},
       "adam runs",
       [](const Facts& f) {
         return runs_with(f, "optimizer.optimizer", {"adam"}, "Use optimizer.optimizer=adam.");
       }},
      {kPlan,
       {"optimizer.decoupled_weight_decay"},
       "AdamW runs",
       [](const Facts& f) {
         return runs_with(f, "optimizer.decoupled_weight_decay", {"true"},
                          "Use optimizer.decoupled_weight_decay=true.");
       }},
      {kPlan,
       {"optimizer.offload_placement", "optimizer.optimizer_cpu_offload"},
       "the latest layers are moved first",
       [](const Facts& f) -> Verdict {
         if (!f.config.optimizer.optimizer_cpu_offload) return {};
         return runs_with(f, "optimizer.offload_placement", {"latest"},
                          "Use optimizer.offload_placement=latest.");
       }},
      {kPlan,
       {"dataset.reset_position_ids", "dataset.reset_attention_mask", "dataset.eod_mask_loss",
        "tokenizer.tokenizer_type"},
       "what goes by documents needs a tokenizer whose end of document is known",
       document_ends},
      {kPlan,
       {"dataset.dataloader_type"},
       "the single order runs",
       [](const Facts& f) {
         return runs_with(f, "dataset.dataloader_type", {"single"},
                          "Use dataset.dataloader_type=single.");
       }},
  };
  return rules;
}

}  // namespace rr::recipe
