// Pre-norm decoder layers: which weights, in which order.
#include "model/layers.h"

#include <ATen/ATen.h>

namespace rr::model {

namespace {

NormWeights find_norm(const plan::ModelSpec& model, Weights& weights, const std::string& name) {
  NormWeights norm;
  norm.weight = &weights.at(name + "weight");
  norm.center = model.norm == plan::Norm::layer;
  if (norm.center) norm.bias = &weights.at(name + "bias");
  norm.epsilon = static_cast<float>(model.norm_epsilon);
  return norm;
}

Linear find_linear(Weights& weights, const std::string& name) {
  return {&weights.at(name + ".weight"), weights.find(name + ".bias")};
}

DecoderLayer find_layer(const plan::ModelSpec& model, Weights& weights, int id) {
  const std::string prefix = "decoder.layers." + std::to_string(id - 1) + ".";
  DecoderLayer layer;
  layer.id = id;
  layer.attention_norm =
      find_norm(model, weights, prefix + "self_attention.linear_qkv.layer_norm_");
  layer.qkv = find_linear(weights, prefix + "self_attention.linear_qkv");
  layer.projection = find_linear(weights, prefix + "self_attention.linear_proj");
  if (model.qk_norm) {
    layer.q_norm = &weights.at(prefix + "self_attention.q_layernorm.weight");
    layer.k_norm = &weights.at(prefix + "self_attention.k_layernorm.weight");
  }
  layer.router = weights.find(prefix + "mlp.router.weight");
  layer.moe = layer.router != nullptr;
  if (layer.moe) {
    layer.mlp_norm = find_norm(model, weights, prefix + "pre_mlp_layernorm.");
    layer.experts1 = &weights.at(prefix + "mlp.experts.linear_fc1.weight");
    layer.experts2 = &weights.at(prefix + "mlp.experts.linear_fc2.weight");
  } else {
    layer.mlp_norm = find_norm(model, weights, prefix + "mlp.linear_fc1.layer_norm_");
    layer.fc1 = find_linear(weights, prefix + "mlp.linear_fc1");
    layer.fc2 = find_linear(weights, prefix + "mlp.linear_fc2");
  }
  return layer;
}

}  // namespace

Decoder::Decoder(const plan::ModelSpec& model, const plan::StagePlan& stage, Weights& weights,
                 comm::Communicator& expert_group)
    : model_(model), expert_group_(expert_group), rope_(make_rope_tables(model, model.seq_length)) {
  const bool planned_only = model.shared_expert_ffn > 0 || model.expert_bias ||
                            model.attention_sinks || model.latent.kv_rank > 0;
  RR_CHECK(!planned_only, "an architecture that is planned only");
  RR_CHECK(!model.qk_norm || model.norm == plan::Norm::rms, "QK-norm is an RMSNorm");
  for (const int id : stage.layers) layers_.push_back(find_layer(model, weights, id));
  if (stage.embedding) {
    words_ = &weights.at("embedding.word_embeddings.weight");
    positions_ = weights.find("embedding.position_embeddings.weight");
  }
  if (stage.head) {
    final_norm_ = find_norm(model, weights, "decoder.final_layernorm.");
    head_ = weights.find("output_layer.weight");
    if (head_ == nullptr) head_ = words_;
    RR_CHECK(head_ != nullptr, "a head");
  }
}

at::Tensor Decoder::embed(const Run& run) { return embedding(run, *words_, positions_); }

at::Tensor Decoder::attend(const Run& run, const DecoderLayer& layer, const at::Tensor& x) {
  HeadsShape shape;
  shape.type = run.type;
  shape.batch = run.batch;
  shape.seq = run.seq;
  shape.heads = model_.heads;
  shape.groups = model_.query_groups;
  shape.dim = model_.head_dim;
  shape.rotary = rope_.rotary;
  shape.cosines = rope_.cosines.data();
  shape.sines = rope_.sines.data();
  shape.positions = run.tokens->positions.const_data_ptr<std::int64_t>();
  if (layer.q_norm != nullptr) {
    shape.q_weight = layer.q_norm->data();
    shape.k_weight = layer.k_norm->data();
  }
  shape.whole = model_.qk_norm_whole;
  shape.epsilon = static_cast<float>(model_.norm_epsilon);
  const Split split = norm_split(run, x, layer.attention_norm, layer.id);
  const at::Tensor qkv = linear(run, split.normal, *layer.qkv.weight, layer.qkv.bias, {});
  const at::Tensor mixed =
      attention(run, split_heads(run, qkv, shape, layer.q_norm, layer.k_norm), shape);
  return linear(run, mixed, *layer.projection.weight, layer.projection.bias, split.residual);
}

at::Tensor Decoder::experts(const Run& run, const DecoderLayer& layer, const Split& input,
                            AuxiliaryLosses& losses) {
  RouterShape shape;
  shape.tokens = run.rows();
  shape.experts = model_.experts;
  shape.per_token = model_.experts_per_token;
  shape.score = model_.router_score;
  shape.pre_softmax = model_.router_pre_softmax;
  shape.scaling = model_.router_scaling;
  shape.balance = model_.load_balance;
  shape.sequences = run.batch;
  shape.aux_coefficient = model_.aux_loss_coefficient;
  shape.z_coefficient = model_.z_loss_coefficient;
  const Dispatched at_experts = dispatch(run, input.normal, *layer.router, shape, expert_group_);
  losses.load_balancing += at_experts.load_balancing;
  losses.z += at_experts.z;
  const auto& exchange = at_experts.exchange;
  const at::Tensor up = grouped_linear(run, at_experts.rows, *layer.experts1, exchange);
  const at::Tensor active = activation(run, up, at_experts.probabilities, model_.gated,
                                       model_.activation == plan::Activation::gelu);
  const at::Tensor down = grouped_linear(run, active, *layer.experts2, exchange);
  return combine(run, down, exchange, input.residual);
}

at::Tensor Decoder::forward(const Run& run, const DecoderLayer& layer, const at::Tensor& x,
                            AuxiliaryLosses& losses) {
  const Split split = norm_split(run, attend(run, layer, x), layer.mlp_norm, -1);
  if (layer.moe) return experts(run, layer, split, losses);
  const at::Tensor up = linear(run, split.normal, *layer.fc1.weight, layer.fc1.bias, {});
  const at::Tensor active =
      activation(run, up, {}, model_.gated, model_.activation == plan::Activation::gelu);
  return linear(run, active, *layer.fc2.weight, layer.fc2.bias, split.residual);
}

at::Tensor Decoder::head(const Run& run, const at::Tensor& x, Loss& loss, at::Tensor* logits) {
  const int id = static_cast<int>(model_.num_layers) + 1;
  return head_loss(run, norm(run, x, final_norm_, id), *head_, model_.vocab, loss, logits);
}

}  // namespace rr::model
