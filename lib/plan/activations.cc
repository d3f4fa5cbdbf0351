// Activation memory from shapes: per layer, then over the schedule.
#include "plan/activations.h"

#include <algorithm>

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

// Bytes of one token's dense tensors: both norms' inputs and outputs, the fused projection when
// query and key norms read it again, the rotated heads, the attention's output.
std::int64_t attention_bytes(const Plan& plan) {
  const ModelSpec& m = plan.model;
  const std::int64_t e = size_of(m.compute);
  const std::int64_t tensor = plan.topology.tensor;
  const std::int64_t q = m.heads * m.head_dim, kv = m.query_groups * m.head_dim;
  std::int64_t elements = 2 * m.hidden / sequence_ranks(plan);
  if (m.latent.kv_rank > 0) {
    // Projections down, then heads up; queries and keys are kept once, rotated.
    const LatentAttention& l = m.latent;
    elements += 2 * (l.q_rank + l.kv_rank) + l.rotary_dim;
    elements += m.heads * (2 * (l.qk_dim + l.rotary_dim) + 2 * l.v_dim) / tensor;
    return elements * e + 4 + m.heads / tensor * 4;
  }
  elements += (q + 2 * kv) / tensor * (m.qk_norm ? 2 : 1);
  elements += q / tensor;
  return elements * e + 4 + m.heads / tensor * 4;  // row factor of the norm, log-sum of each head
}

std::int64_t dense_mlp_bytes(const Plan& plan, std::int64_t ffn) {
  const ModelSpec& m = plan.model;
  return ((m.gated ? 2 : 1) * ffn + ffn) / plan.topology.tensor * size_of(m.compute);
}

// Of one token at balanced routing: K rows at the experts, wherever they are.
std::int64_t experts_bytes(const Plan& plan) {
  const ModelSpec& m = plan.model;
  const Topology& t = plan.topology;
  const std::int64_t e = size_of(m.compute);
  const std::int64_t inner = ((m.gated ? 2 : 1) * m.expert_ffn + m.expert_ffn) / t.expert_tensor;
  const std::int64_t rows = m.experts_per_token * t.expert_tensor;
  const std::int64_t routed = rows * ((m.hidden + inner) * e + 2 * 4);  // index and probability
  return (routed + m.experts * 2 * 4) / sequence_ranks(plan);           // scores and probabilities
}

}  // namespace

std::int64_t layer_input_bytes(const Plan& plan) {
  return local_tokens(plan) * plan.model.hidden * size_of(plan.model.compute) /
         sequence_ranks(plan);
}

std::int64_t layer_activation_bytes(const Plan& plan, int layer) {
  const ModelSpec& m = plan.model;
  std::int64_t per_token = attention_bytes(plan);
  per_token += 2 * m.hidden / sequence_ranks(plan) * size_of(m.compute) + 4;
  if (is_moe(m, layer)) {
    per_token += experts_bytes(plan);
    if (m.shared_expert_ffn > 0) per_token += dense_mlp_bytes(plan, m.shared_expert_ffn);
  } else {
    per_token += dense_mlp_bytes(plan, m.ffn);
  }
  return local_tokens(plan) * per_token;
}

namespace {

// One chunk of a stage for one micro-batch.
struct ChunkBytes {
  std::int64_t device = 0, host = 0;
  std::int64_t largest = 0;  // one layer in full: recomputed or brought back before its backward
};

ChunkBytes chunk_bytes(const Plan& plan, const StagePlan& stage, int chunk) {
  const auto per_chunk = static_cast<std::int64_t>(stage.layers.size()) / plan.topology.chunks;
  ChunkBytes bytes;
  for (std::int64_t i = 0; i < per_chunk; ++i) {
    const int layer = stage.layers[static_cast<std::size_t>(chunk * per_chunk + i)];
    const std::int64_t full = layer_activation_bytes(plan, layer);
    if (plan.activations.enabled && i < plan.activations.layers) {
      bytes.host += full;
      bytes.largest = std::max(bytes.largest, 2 * full);  // one leaves or comes while one computes
    } else if (plan.recompute.full && i < plan.recompute.layers) {
      bytes.device += layer_input_bytes(plan);
      bytes.largest = std::max(bytes.largest, full);
    } else {
      bytes.device += full;
    }
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
  std::int64_t largest = 0;
  for (int c = 0; c < plan.topology.chunks; ++c) {
    chunks.push_back(chunk_bytes(plan, stage, c));
    largest = std::max(largest, chunks.back().largest);
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
  peak.device += largest;
  if (stage.head) {
    // Logits in the compute type, and as f32 for the loss where that is another type.
    const std::int64_t e = size_of(plan.model.compute);
    peak.logits =
        local_tokens(plan) * plan.model.padded_vocab / plan.topology.tensor * (e == 4 ? 4 : e + 4);
  }
  return peak;
}

}  // namespace rr::plan
