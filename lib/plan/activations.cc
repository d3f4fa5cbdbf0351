// Activation memory from shapes: per layer, then over the schedule.
//
// Routing is taken as balanced, so that a rank's experts get as many rows as its tokens send. A
// rank whose experts are busier keeps more, up to the expert parallel size times the rows.
#include "plan/activations.h"

#include <algorithm>

#include "plan/stage_parameters.h"

namespace rr::plan {

namespace {

std::int64_t local_tokens(const Plan& plan) {
  return plan.batch.micro_batch * plan.model.seq_length / plan.topology.context;
}

// Ranks over which whole-width tensors (norms, residuals) are sliced.
int sequence_ranks(const Plan& plan) {
  return plan.topology.sequence_parallel ? plan.topology.tensor : 1;
}

bool is_moe(const ModelSpec& model, int layer) {
  return model.experts > 0 && model.layer_is_moe[static_cast<std::size_t>(layer - 1)];
}

// A tensor that a layer keeps, per token.
struct Kept {
  std::int64_t width = 0;  // elements
  std::int64_t element_bytes = 0;
  bool moves = true;  // with cpu_offloading; factors and log-sums stay
};

class LayerTensors {
 public:
  LayerTensors(const Plan& plan, int layer)
      : m_(plan.model),
        t_(plan.topology),
        e_(size_of(plan.model.compute)),
        hidden_(plan.model.hidden / sequence_ranks(plan)) {
    const bool moe = is_moe(m_, layer);
    norm();
    if (m_.latent.kv_rank > 0) {
      latent_attention();
    } else {
      attention();
    }
    norm();
    if (moe) experts();
    if (!moe) mlp(m_.ffn);
    if (moe && m_.shared_expert_ffn > 0) mlp(m_.shared_expert_ffn);
  }

  const std::vector<Kept>& kept() const { return kept_; }
  // Elements per token that gradients add to what is kept, at the most crowded moment of the
  // layer's backward: beside the residual's gradient, either two neighbours in the feed-forward
  // part or, when that part is gone, in the attention.
  std::int64_t working() const {
    return hidden_ + std::max(mlp_working_, attention_working_ - mlp_kept_);
  }

 private:
  void keep(std::int64_t width) { kept_.push_back({width, e_, true}); }
  void stays(std::int64_t width) { kept_.push_back({width, 4, false}); }

  void norm() {  // input, row factor, output
    keep(hidden_);
    stays(1);
    keep(hidden_);
  }

  void attention() {
    const std::int64_t q = m_.heads * m_.head_dim / t_.tensor;
    const std::int64_t kv = m_.query_groups * m_.head_dim / t_.tensor;
    if (m_.qk_norm) keep(q + 2 * kv);  // read again by the norms' backward
    for (const std::int64_t width : {q, kv, kv, q}) keep(width);
    stays(m_.heads / t_.tensor);
    attention_working_ = 2 * q + 2 * kv;
  }

  // Projections down, then heads up; queries and keys are kept once, rotated.
  void latent_attention() {
    const LatentAttention& l = m_.latent;
    const std::int64_t heads = m_.heads / t_.tensor;
    if (l.q_rank > 0) keep(2 * l.q_rank);
    keep(2 * l.kv_rank + l.rotary_dim);
    for (const std::int64_t width : {l.qk_dim + l.rotary_dim, l.qk_dim + l.rotary_dim, l.v_dim}) {
      keep(heads * width);
    }
    keep(heads * l.v_dim);
    stays(heads);
    attention_working_ = heads * 2 * (l.qk_dim + l.rotary_dim + l.v_dim);
  }

  void mlp(std::int64_t ffn) {
    const std::int64_t inner = ffn / t_.tensor, up = (m_.gated ? 2 : 1) * inner;
    keep(up);
    keep(inner);
    mlp_kept_ += up + inner;
    mlp_working_ = std::max(mlp_working_, up);  // the activation's gradient took its output's place
  }

  // K rows of every token at balanced routing, wherever the experts are.
  void experts() {
    const int sequence = t_.sequence_parallel ? t_.tensor : 1;
    const auto rows = [&](std::int64_t width) {
      return m_.experts_per_token * t_.expert_tensor * width / sequence;
    };
    const std::int64_t inner = m_.expert_ffn / t_.expert_tensor, up = (m_.gated ? 2 : 1) * inner;
    kept_.push_back({m_.experts / sequence, 4, true});  // router's scores
    keep(rows(m_.hidden));
    keep(rows(up));
    kept_.push_back({rows(1), 4, true});  // probabilities
    keep(rows(inner));
    mlp_kept_ += rows(m_.hidden + up + inner);
    // Rows on their way to the experts are there three times: sent, received, sorted.
    const std::int64_t moved = (t_.expert > 1 ? 3 : 1) * m_.hidden;
    mlp_working_ = std::max(mlp_working_, rows(std::max({moved, m_.hidden + inner, up})));
  }

  const ModelSpec& m_;
  const Topology& t_;
  std::int64_t e_, hidden_;
  std::int64_t attention_working_ = 0, mlp_working_ = 0, mlp_kept_ = 0;
  std::vector<Kept> kept_;
};

}  // namespace

std::int64_t layer_input_bytes(const Plan& plan) {
  return local_tokens(plan) * plan.model.hidden * size_of(plan.model.compute) /
         sequence_ranks(plan);
}

std::int64_t layer_activation_bytes(const Plan& plan, int layer) {
  std::int64_t per_token = 0;
  const LayerTensors tensors(plan, layer);
  for (const Kept& tensor : tensors.kept()) {
    per_token += tensor.width * tensor.element_bytes;
  }
  return local_tokens(plan) * per_token;
}

std::int64_t layer_moved_bytes(const Plan& plan, int layer) {
  const std::int64_t tokens = local_tokens(plan);
  std::int64_t bytes = 0;
  const LayerTensors tensors(plan, layer);
  for (const Kept& tensor : tensors.kept()) {
    const std::int64_t elements = tokens * tensor.width;
    if (tensor.moves && elements >= plan.activations.min_elements) {
      bytes += elements * tensor.element_bytes;
    }
  }
  return bytes;
}

namespace {

// One chunk of a stage for one micro-batch.
struct ChunkBytes {
  std::int64_t device = 0, host = 0;
  // The most that backward has beside `device`: a layer recomputed or brought back, the next one on
  // its way, gradients; less what the layers behind have freed by then.
  std::int64_t working = 0;
};

// Walks the layers as backward does, last first.
ChunkBytes chunk_bytes(const Plan& plan, const StagePlan& stage, int chunk) {
  const std::span<const int> layers = layers_of_chunk(stage, chunk);
  const auto layer_at = [&](std::int64_t i) { return layers[static_cast<std::size_t>(i)]; };
  const auto moved_of = [&](std::int64_t i) {
    const bool moves = plan.activations.enabled && i >= 0 && i < plan.activations.layers;
    return moves ? layer_moved_bytes(plan, layer_at(i)) : 0;
  };
  ChunkBytes bytes;
  for (auto i = static_cast<std::int64_t>(layers.size()) - 1; i >= 0; --i) {
    const int layer = layer_at(i);
    const std::int64_t full = layer_activation_bytes(plan, layer), moved = moved_of(i);
    const bool recomputed = plan.recompute.full && i < plan.recompute.layers && moved == 0;
    const std::int64_t gradients =
        local_tokens(plan) * LayerTensors(plan, layer).working() * size_of(plan.model.compute);
    const std::int64_t back = recomputed ? full : moved + moved_of(i - 1);
    bytes.working = std::max(bytes.working, gradients + back - bytes.device);
    bytes.device += recomputed ? layer_input_bytes(plan) : full - moved;
    bytes.host += moved;
  }
  const bool last = chunk == plan.topology.chunks - 1;
  if (stage.head && last) bytes.device += 2 * layer_input_bytes(plan);  // final norm
  return bytes;
}

}  // namespace

ActivationBytes activation_bytes(const Plan& plan, int stage_index,
                                 const std::vector<Step>& steps) {
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  std::vector<ChunkBytes> chunks;
  std::int64_t working = 0;
  for (int c = 0; c < plan.topology.chunks; ++c) {
    chunks.push_back(chunk_bytes(plan, stage, c));
    working = std::max(working, chunks.back().working);
  }
  ActivationBytes peak;
  std::int64_t device = 0, host = 0;
  for (const Step& step : steps) {
    const ChunkBytes& chunk = chunks[static_cast<std::size_t>(step.chunk)];
    const int sign = step.kind == StepKind::forward ? 1 : step.kind == StepKind::backward ? -1 : 0;
    device += sign * chunk.device;
    host += sign * chunk.host;
    peak.device = std::max(peak.device, device);
    peak.host = std::max(peak.host, host);
  }
  if (stage.head) {
    // Logits in the compute type, and as f32 for the loss where that is another type. The head's
    // backward has freed them, and the final norm's tensors, before the layers' gradients come.
    const std::int64_t e = size_of(plan.model.compute);
    peak.logits =
        local_tokens(plan) * plan.model.vocab / plan.topology.tensor * (e == 4 ? 4 : e + 4);
    working = std::max<std::int64_t>(layer_input_bytes(plan),
                                     working - 2 * layer_input_bytes(plan) - peak.logits);
  }
  if (!stage.head) working += layer_input_bytes(plan);  // an output on its way to the next stage
  peak.device += working;
  return peak;
}

}  // namespace rr::plan
