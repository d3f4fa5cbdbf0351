// Config to ModelSpec and Topology.
#include <cmath>

#include "plan/from_config.h"

namespace rr::plan {

Topology make_topology(const recipe::Config& config, int world_size) {
  const recipe::Model& m = config.model;
  Topology t;
  t.world = world_size;
  t.tensor = static_cast<int>(m.tensor_model_parallel_size);
  t.context = static_cast<int>(m.context_parallel_size);
  t.pipeline = static_cast<int>(m.pipeline_model_parallel_size);
  t.expert = static_cast<int>(m.expert_model_parallel_size);
  t.expert_tensor =
      static_cast<int>(m.expert_tensor_parallel_size.value_or(m.tensor_model_parallel_size));
  t.chunks = static_cast<int>(m.virtual_pipeline_model_parallel_size.value_or(1));
  t.sequence_parallel = m.sequence_parallel;
  t.data = world_size / (t.tensor * t.context * t.pipeline);
  t.expert_data = world_size / (t.expert * t.expert_tensor * t.pipeline);
  RR_CHECK(t.tensor * t.context * t.pipeline * t.data == world_size, "rules let this world pass");
  RR_CHECK(t.expert * t.expert_tensor * t.pipeline * t.expert_data == world_size,
           "rules let this world pass");
  return t;
}

namespace {

DType compute_dtype(const recipe::Config& config) {
  const std::string name = config.model.params_dtype.value_or("");
  if (name == "bf16" || (name.empty() && config.mixed_precision.starts_with("bf16"))) {
    return DType::bf16;
  }
  if (name == "fp16" || (name.empty() && config.mixed_precision.starts_with("fp16"))) {
    return DType::f16;
  }
  return DType::f32;
}

void read_sizes(const recipe::Config& config, const Topology& topology, ModelSpec& spec) {
  const recipe::Model& m = config.model;
  spec.num_layers = m.num_layers;
  spec.hidden = m.hidden_size;
  spec.heads = m.num_attention_heads;
  spec.query_groups = m.num_query_groups.value_or(m.num_attention_heads);
  spec.head_dim = m.kv_channels.value_or(m.hidden_size / m.num_attention_heads);
  spec.ffn = m.ffn_hidden_size.value_or(4 * m.hidden_size);
  spec.seq_length = m.seq_length;
  const bool from_tokenizer = config.tokenizer.use_tokenizer_vocab_size || !m.vocab_size;
  const auto tokenizer_vocab = config.tokenizer.vocab_size;
  spec.vocab = from_tokenizer && tokenizer_vocab ? *tokenizer_vocab : m.vocab_size.value_or(0);
  RR_CHECK(spec.vocab > 0, "rules let a model without vocabulary pass");
  const std::int64_t unit = from_tokenizer || m.should_pad_vocab
                                ? m.make_vocab_size_divisible_by * topology.tensor
                                : topology.tensor;
  spec.padded_vocab = round_up(spec.vocab, unit);
}

void read_layers(const recipe::Model& m, ModelSpec& spec) {
  spec.gated = m.gated_linear_unit;
  spec.activation = m.activation_func == "silu" ? Activation::silu : Activation::gelu;
  spec.norm = m.normalization == "RMSNorm" ? Norm::rms : Norm::layer;
  spec.norm_epsilon = m.layernorm_epsilon;
  spec.qk_norm = m.qk_layernorm;
  spec.qk_norm_whole = m.qk_layernorm_whole;
  spec.tied = m.share_embeddings_and_output_weights;
  spec.position = m.position_embedding_type == "none"               ? Position::none
                  : m.position_embedding_type == "learned_absolute" ? Position::learned
                                                                    : Position::rope;
  spec.rotary_base = m.rotary_base;
  spec.rotary_percent = m.rotary_percent;
  if (m.rope_scaling) {
    spec.rope_scaling = {m.rope_scaling_factor, m.rope_scaling_low_freq_factor,
                         m.rope_scaling_high_freq_factor,
                         m.rope_scaling_original_max_position_embeddings};
  }
  if (m.multi_latent_attention) {
    spec.latent = {m.q_lora_rank.value_or(0), m.kv_lora_rank, m.qk_head_dim, m.qk_pos_emb_head_dim,
                   m.v_head_dim};
  }
  spec.attention_sinks = m.softmax_type == "learnable";
  spec.linear_bias = m.add_bias_linear;
  spec.qkv_bias = m.add_qkv_bias;
  spec.init_std = m.init_method_std;
  spec.output_std = m.init_method_std / std::sqrt(2.0 * static_cast<double>(m.num_layers));
  spec.embedding_std = m.embedding_init_method_std.value_or(m.init_method_std);
}

void read_experts(const recipe::Model& m, ModelSpec& spec) {
  spec.layer_is_moe.assign(static_cast<std::size_t>(m.num_layers), false);
  spec.experts = m.num_moe_experts.value_or(0);
  if (spec.experts == 0) return;
  spec.experts_per_token = m.moe_router_topk;
  spec.expert_bias = m.add_bias_linear;
  spec.expert_ffn = m.moe_ffn_hidden_size.value_or(spec.ffn);
  spec.shared_expert_ffn = m.moe_shared_expert_intermediate_size.value_or(0);
  const recipe::LayerPattern& pattern = m.moe_layer_freq;
  for (std::size_t i = 0; i < spec.layer_is_moe.size(); ++i) {
    spec.layer_is_moe[i] = pattern.list.empty() ? static_cast<std::int64_t>(i) % pattern.period == 0
                                                : i < pattern.list.size() && pattern.list[i] != 0;
  }
  spec.router_score =
      m.moe_router_score_function == "softmax" ? RouterScore::softmax : RouterScore::sigmoid;
  spec.router_pre_softmax = m.moe_router_pre_softmax;
  spec.router_scaling = m.moe_router_topk_scaling_factor.value_or(1.0);
  if (m.moe_router_load_balancing_type == "seq_aux_loss") {
    spec.load_balance = LoadBalance::seq_aux_loss;
  } else if (m.moe_router_load_balancing_type != "none" && m.moe_aux_loss_coeff > 0) {
    spec.load_balance = LoadBalance::aux_loss;
  }
  spec.aux_loss_coefficient = m.moe_aux_loss_coeff;
  spec.z_loss_coefficient = m.moe_z_loss_coeff.value_or(0.0);
}

}  // namespace

ModelSpec make_model(const recipe::Config& config, const Topology& topology) {
  ModelSpec spec;
  read_sizes(config, topology, spec);
  read_layers(config.model, spec);
  read_experts(config.model, spec);
  spec.seed = static_cast<std::uint64_t>(config.rng.seed);
  spec.compute = compute_dtype(config);
  return spec;
}

}  // namespace rr::plan
