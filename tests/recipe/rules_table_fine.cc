// The rows of rules_table.h about fine-grained offload, and further combinations of what can be
// planned only.
#include "rules_table.h"

namespace rr::test {
namespace {

const std::string kFine = "model.fine_grained_activation_offloading=true";

std::string modules(const std::string& names) { return "model.offload_modules=[" + names + "]"; }

}  // namespace

std::vector<Row> fine_rows() {
  const std::string selective = "model.recompute_granularity=selective";
  const std::string recompute_moe = "model.recompute_modules=[moe]";
  const std::string fuser = "model.use_transformer_engine_op_fuser=true";
  const std::string local = "model.cuda_graph_impl=local";
  const std::string whole = "model.cuda_graph_impl=full_iteration";
  const std::string captured = "model.cuda_graph_modules=[moe_router]";
  const std::string recomputed = "what is recomputed is not offloaded";
  const std::string parts = "the experts are offloaded whole or in parts";
  const std::string graphs = "fine-grained offload fits the CUDA graphs";
  static const std::vector<Row> rows = {
      {recomputed,
       "Cannot offload moe_act while recomputing the entire MoE layer.",
       {kFine, modules("moe_act"), selective, recompute_moe},
       {kFine, modules("attn_norm"), selective, recompute_moe}},
      {recomputed,
       "gdp_qkv cannot be set in offload_modules together with gdp_in_proj",
       {kFine, modules("gdp_qkv"), selective, "model.recompute_modules=[gdp_in_proj]"},
       {kFine, modules("gdp_qkv"), selective, "model.recompute_modules=[gdp_qkv]"}},
      {recomputed,
       "'mhc' in recompute_modules",
       {kFine, modules("core_attn"), selective, "model.recompute_modules=[mhc]"},
       {selective, "model.recompute_modules=[mhc]"}},
      {parts,
       "When moe_paged_stash is enabled, offload_modules must not include expert_fc1",
       {kFine, modules("expert_fc1"), "model.moe_paged_stash=true"},
       {kFine, modules("core_attn"), "model.moe_paged_stash=true"}},
      {parts,
       "fused_group_mlp requires use_transformer_engine_op_fuser.",
       {kFine, modules("fused_group_mlp")},
       {kFine, modules("fused_group_mlp"), fuser}},
      {parts,
       "Remove: expert_fc1, moe_act",
       {kFine, modules("fused_group_mlp,moe_act,expert_fc1"), fuser},
       {kFine, modules("moe_act,expert_fc1"), fuser}},
      {graphs,
       "with cuda_graph_impl='local' only supports offload_modules",
       {kFine, modules("moe_act,core_attn"), local, captured},
       {kFine, modules("moe_act"), local, captured}},
      {graphs,
       "is not supported with whole-layer CUDA graph capture.",
       {kFine, modules("moe_act"), local},
       {kFine, modules("moe_act"), local, captured}},
      {graphs,
       "Token-drop MoE is temporarily not supported with activation offloading.",
       {kFine, modules("moe_act"), local, "model.cuda_graph_modules=[moe]"},
       {kFine, modules("moe_act"), local, captured}},
      {graphs,
       "cuda_graph_warmup_steps must be greater than 0",
       {kFine, modules("moe_act"), local, captured, "model.cuda_graph_warmup_steps=0"},
       {kFine, modules("moe_act"), local, captured, "model.cuda_graph_warmup_steps=1"}},
      {graphs,
       "fine_grained_offloading_max_inflight_offloads must be a non-negative integer",
       {kFine, modules("core_attn"), whole},
       {kFine, modules("core_attn"), whole,
        "model.fine_grained_offloading_max_inflight_offloads=0"}},
      {"ncclep overlap excludes offloading expert_fc1",
       "with ncclep does not support offloading",
       {kFine, modules("expert_fc1"), "model.overlap_moe_expert_parallel_comm=true",
        "model.moe_flex_dispatcher_backend=ncclep"},
       {kFine, modules("expert_fc1"), "model.moe_flex_dispatcher_backend=ncclep"}},
      {"fine-grained offload needs Transformer Engine layers",
       "is only supported with transformer_engine implementation.",
       {kFine, modules("core_attn"), "model.transformer_impl=local"},
       {kFine, modules("core_attn")}},
  };
  return rows;
}

std::vector<Row> combination_rows() {
  const std::string chunked = "optimizer.chunked_optimizer_state_offload=true";
  const std::string sharded = "optimizer.use_distributed_optimizer=true";
  const std::string aware = "optimizer.use_precision_aware_optimizer=true";
  const std::string overlap = "model.overlap_moe_expert_parallel_comm=true";
  const std::string ep2 = "model.expert_model_parallel_size=2";
  const std::string bf16 = "mixed_precision=bf16_mixed";
  const std::string selective = "model.recompute_granularity=selective";
  const std::string other_order = "dist.use_tp_pp_dp_mapping=true";
  const std::string pp2 = "model.pipeline_model_parallel_size=2";
  const std::string steps = "train.step_batch_size_schedule=";
  const std::string schedule = "a batch size schedule starts at 0 and rises";
  static const std::vector<Row> rows = {
      {"chunked state offload has what it needs",
       "excludes Megatron FSDP",
       {chunked, sharded, "ddp.use_megatron_fsdp=true"},
       {chunked, sharded}},
      {"chunked state offload has what it needs",
       "needs fp32 masters and fp32 or bf16 moments",
       {chunked, sharded, aware, "optimizer.exp_avg_dtype=fp16"},
       {chunked, sharded, aware, "optimizer.exp_avg_dtype=bf16"}},
      {"another rank order needs DP and EDP equal",
       "When not using pp-last rank ordering",
       {other_order, pp2, ep2},
       {other_order, pp2},
       true,
       4},
      {"dispatch overlap has what it needs",
       "needs bf16 or fp16",
       {overlap, ep2},
       {overlap, ep2, bf16},
       true,
       2},
      {"dispatch overlap has what it needs",
       "excludes full recompute, recompute of moe",
       {overlap, ep2, bf16, selective, "model.recompute_modules=[moe]"},
       {overlap, ep2, bf16, selective, "model.recompute_modules=[layernorm]"},
       true,
       2},
      {"dispatch overlap has what it needs",
       "supports one multi-token prediction layer",
       {overlap, ep2, bf16, "model.mtp_num_layers=2"},
       {overlap, ep2, bf16, "model.mtp_num_layers=1"},
       true,
       2},
      {"recompute_modules names modules",
       "do not work with delayed fp8 scaling",
       {selective, "model.recompute_modules=[layernorm]", "model.fp8=hybrid"},
       {selective, "model.recompute_modules=[layernorm]", "model.fp8=hybrid",
        "model.fp8_recipe=mxfp8"}},
      {"graph modules fit together",
       "mlp cuda graph is only supported for dense layers",
       {"model.cuda_graph_impl=transformer_engine", "model.cuda_graph_modules=[mlp]"},
       {"model.cuda_graph_impl=transformer_engine", "model.cuda_graph_modules=[mlp]",
        "model.moe_layer_freq=2"},
       true},
      {schedule, "Invalid schedule entry '5'", {steps + "\"0:8 5\""}, {steps + "\"0:8 5:16\""}},
      {schedule,
       "first schedule entry must have threshold 0",
       {steps + "\"1:8\""},
       {steps + "\"0:8\""}},
      {schedule,
       "schedule thresholds must be strictly increasing",
       {steps + "\"0:8 1M:16 1000K:32\""},
       {steps + "\"0:8 1M:16 1001K:32\""}},
      {schedule,
       "excludes train.decrease_batch_size_if_needed",
       {steps + "\"0:8\"", "train.decrease_batch_size_if_needed=true"},
       {steps + "\"0:8\""}},
  };
  return rows;
}

}  // namespace rr::test
