// The tensors of a stage under Megatron's names (megatron.md 6.4), as one rank holds them.
#include "plan/stage_parameters.h"

#include <utility>

namespace rr::plan {

namespace {

constexpr const char* kEmbedding = "embedding.word_embeddings.weight";

class Builder {
 public:
  Builder(const ModelSpec& model, const Topology& topology) : m_(model), t_(topology) {}

  void embedding() {
    layer_ = 0;
    add_normal(kEmbedding, {m_.padded_vocab, m_.hidden}, 0, m_.embedding_std);
    if (m_.position == Position::learned) {
      add_normal("embedding.position_embeddings.weight", {m_.seq_length, m_.hidden}, -1,
                 m_.embedding_std);
    }
  }

  void decoder_layer(int layer) {
    layer_ = layer;
    prefix_ = "decoder.layers." + std::to_string(layer - 1) + ".";
    if (m_.latent.kv_rank > 0) {
      latent_attention();
    } else {
      attention();
    }
    if (m_.experts > 0 && m_.layer_is_moe[static_cast<std::size_t>(layer - 1)]) {
      moe();
    } else {
      norm("mlp.linear_fc1.layer_norm_", m_.hidden, -1);
      mlp("mlp.", m_.ffn, m_.linear_bias);
    }
    prefix_.clear();
  }

  void head(bool with_embedding) {
    layer_ = static_cast<int>(m_.num_layers) + 1;
    norm("decoder.final_layernorm.", m_.hidden, -1);
    if (m_.tied && with_embedding) return;
    add_normal("output_layer.weight", {m_.padded_vocab, m_.hidden}, 0,
               m_.tied ? m_.embedding_std : m_.init_std);
    if (m_.tied) {
      parameters_.back().duplicate = true;
      parameters_.back().init_name = kEmbedding;
    }
  }

  std::vector<Parameter> take() { return std::move(parameters_); }

 private:
  // `full` is the shape over all tensor and expert ranks; dimension `split` is sliced.
  Parameter& add(const std::string& name, std::vector<std::int64_t> full, int split) {
    Parameter p;
    p.name = prefix_ + name;
    p.init_name = p.name;
    p.layer = layer_;
    p.split = split;
    p.shape = std::move(full);
    if (split >= 0) p.shape[static_cast<std::size_t>(split)] /= t_.tensor;
    p.size = 1;
    for (const std::int64_t extent : p.shape) p.size *= extent;
    p.decay = p.shape.size() >= 2;
    return parameters_.emplace_back(std::move(p));
  }

  void add_normal(const std::string& name, std::vector<std::int64_t> full, int split, double std) {
    Parameter& p = add(name, std::move(full), split);
    p.init = Init::normal;
    p.std = std;
  }

  // [local experts, ...one expert's shape], dimension `split` of one expert sliced over
  // expert-tensor ranks. A vector is a bias.
  void add_experts(const std::string& name, std::vector<std::int64_t> one, int split, double std) {
    if (split >= 0) one[static_cast<std::size_t>(split)] /= t_.expert_tensor;
    const bool vector = one.size() == 1;
    one.insert(one.begin(), m_.experts / t_.expert);
    Parameter& p = add(name, std::move(one), -1);
    p.init = vector ? Init::zeros : Init::normal;
    p.std = std;
    p.expert = true;
    p.decay = !vector;
    p.split = split >= 0 ? split + 1 : -1;
  }

  void norm(const std::string& name, std::int64_t width, int split) {
    add(name + "weight", {width}, split).init = Init::ones;
    if (m_.norm == Norm::layer) add(name + "bias", {width}, split).init = Init::zeros;
  }

  void bias(const std::string& name, std::int64_t width, int split) {
    add(name, {width}, split).init = Init::zeros;
  }

  void attention() {
    const std::int64_t q = m_.heads * m_.head_dim;
    const std::int64_t kv = m_.query_groups * m_.head_dim;
    norm("self_attention.linear_qkv.layer_norm_", m_.hidden, -1);
    add_normal("self_attention.linear_qkv.weight", {q + 2 * kv, m_.hidden}, 0, m_.init_std);
    if (m_.linear_bias || m_.qkv_bias) bias("self_attention.linear_qkv.bias", q + 2 * kv, 0);
    if (m_.qk_norm) {
      norm("self_attention.q_layernorm.", m_.qk_norm_whole ? q : m_.head_dim,
           m_.qk_norm_whole ? 0 : -1);
      norm("self_attention.k_layernorm.", m_.qk_norm_whole ? kv : m_.head_dim,
           m_.qk_norm_whole ? 0 : -1);
    }
    if (m_.attention_sinks) bias("self_attention.core_attention.softmax_offset", m_.heads, 0);
    add_normal("self_attention.linear_proj.weight", {m_.hidden, q}, 1, m_.output_std);
    if (m_.linear_bias) bias("self_attention.linear_proj.bias", m_.hidden, -1);
  }

  void latent_attention() {
    const LatentAttention& a = m_.latent;
    const std::int64_t q = m_.heads * (a.qk_dim + a.rotary_dim);
    norm("input_layernorm.", m_.hidden, -1);
    if (a.q_rank > 0) {
      add_normal("self_attention.linear_q_down_proj.weight", {a.q_rank, m_.hidden}, -1,
                 m_.init_std);
      norm("self_attention.linear_q_up_proj.layer_norm_", a.q_rank, -1);
      add_normal("self_attention.linear_q_up_proj.weight", {q, a.q_rank}, 0, m_.init_std);
    } else {
      add_normal("self_attention.linear_q_proj.weight", {q, m_.hidden}, 0, m_.init_std);
    }
    add_normal("self_attention.linear_kv_down_proj.weight", {a.kv_rank + a.rotary_dim, m_.hidden},
               -1, m_.init_std);
    norm("self_attention.linear_kv_up_proj.layer_norm_", a.kv_rank, -1);
    add_normal("self_attention.linear_kv_up_proj.weight",
               {m_.heads * (a.qk_dim + a.v_dim), a.kv_rank}, 0, m_.init_std);
    add_normal("self_attention.linear_proj.weight", {m_.hidden, m_.heads * a.v_dim}, 1,
               m_.output_std);
  }

  void mlp(const std::string& name, std::int64_t ffn, bool with_bias) {
    const std::int64_t up = m_.gated ? 2 * ffn : ffn;
    add_normal(name + "linear_fc1.weight", {up, m_.hidden}, 0, m_.init_std);
    if (with_bias) bias(name + "linear_fc1.bias", up, 0);
    add_normal(name + "linear_fc2.weight", {m_.hidden, ffn}, 1, m_.output_std);
    if (with_bias) bias(name + "linear_fc2.bias", m_.hidden, -1);
  }

  void moe() {
    norm("pre_mlp_layernorm.", m_.hidden, -1);
    add_normal("mlp.router.weight", {m_.experts, m_.hidden}, -1, m_.init_std);
    if (m_.expert_bias) bias("mlp.router.bias", m_.experts, -1);
    const std::int64_t up = m_.gated ? 2 * m_.expert_ffn : m_.expert_ffn;
    add_experts("mlp.experts.linear_fc1.weight", {up, m_.hidden}, 0, m_.init_std);
    if (m_.expert_bias) add_experts("mlp.experts.linear_fc1.bias", {up}, 0, 0.0);
    add_experts("mlp.experts.linear_fc2.weight", {m_.hidden, m_.expert_ffn}, 1, m_.output_std);
    if (m_.expert_bias) add_experts("mlp.experts.linear_fc2.bias", {m_.hidden}, -1, 0.0);
    if (m_.shared_expert_ffn > 0) mlp("mlp.shared_experts.", m_.shared_expert_ffn, false);
  }

  const ModelSpec& m_;
  const Topology& t_;
  int layer_ = 0;
  std::string prefix_;
  std::vector<Parameter> parameters_;
};

std::int64_t num_moe_layers(const ModelSpec& model) {
  std::int64_t count = 0;
  if (model.experts == 0) return 0;
  for (const bool moe : model.layer_is_moe) count += moe ? 1 : 0;
  return count;
}

}  // namespace

std::vector<Parameter> stage_parameters(const ModelSpec& model, const Topology& topology,
                                        const StagePlan& stage) {
  Builder builder(model, topology);
  if (stage.embedding) builder.embedding();
  for (const int layer : stage.layers) builder.decoder_layer(layer);
  if (stage.head) builder.head(stage.embedding);
  return builder.take();
}

std::int64_t count_parameters(const ModelSpec& model) {
  StagePlan whole;
  whole.embedding = whole.head = true;
  for (int layer = 1; layer <= model.num_layers; ++layer) whole.layers.push_back(layer);
  std::int64_t count = 0;
  for (const Parameter& p : stage_parameters(model, Topology{}, whole)) count += p.size;
  const std::int64_t padding = (model.padded_vocab - model.vocab) * model.hidden;
  return count - padding * (model.tied ? 1 : 2);
}

std::int64_t count_active_parameters(const ModelSpec& model) {
  const std::int64_t per_expert = (model.gated ? 3 : 2) * model.expert_ffn * model.hidden;
  return count_parameters(model) -
         num_moe_layers(model) * (model.experts - model.experts_per_token) * per_expert;
}

double attention_macs_per_token(const ModelSpec& model) {
  const auto h = static_cast<double>(model.hidden);
  const auto heads = static_cast<double>(model.heads);
  const auto s = static_cast<double>(model.seq_length);
  const LatentAttention& a = model.latent;
  if (a.kv_rank > 0) {
    const auto q_rank = static_cast<double>(a.q_rank), kv_rank = static_cast<double>(a.kv_rank);
    const double qk = static_cast<double>(a.qk_dim + a.rotary_dim);
    const double v = static_cast<double>(a.v_dim);
    const double queries = a.q_rank > 0 ? q_rank * (h + heads * qk) : h * heads * qk;
    return queries + h * (kv_rank + static_cast<double>(a.rotary_dim)) +
           kv_rank * heads * (static_cast<double>(a.qk_dim) + v) + h * heads * v +
           heads * (qk + v) * s / 2;
  }
  const double q = heads * static_cast<double>(model.head_dim);
  const auto kv = static_cast<double>(model.query_groups * model.head_dim);
  // Causal: scores and values, each q * S, over half of the square.
  return h * (q + 2 * kv) + q * h + q * s;
}

double mlp_macs_per_token(const ModelSpec& model, bool moe) {
  const auto ffn = static_cast<double>(
      moe ? model.expert_ffn * model.experts_per_token + model.shared_expert_ffn : model.ffn);
  return (model.gated ? 3 : 2) * static_cast<double>(model.hidden) * ffn;
}

double count_flops_per_token(const ModelSpec& model) {
  const auto layers = static_cast<double>(model.num_layers);
  const auto moe_layers = static_cast<double>(num_moe_layers(model));
  return 6 * ((layers - moe_layers) * mlp_macs_per_token(model, false) +
              moe_layers * mlp_macs_per_token(model, true)) +
         6 * layers * attention_macs_per_token(model) +
         6 * static_cast<double>(model.hidden) * static_cast<double>(model.padded_vocab);
}

}  // namespace rr::plan
