// Times from sizes and a machine's rates.
//
// A layer is its matrix products at the device's rate for large ones, plus the passes that the
// rest makes over device memory, plus its traffic. Nothing of that is fitted; one constant is, and
// says so.
#include "plan/costs.h"

#include <algorithm>

#include "plan/activations.h"
#include "plan/stage_parameters.h"

namespace rr::plan {

namespace {

// Bytes per parameter that host memory moves in one Adam step: gradient staged and read (8), p, m
// and v read and written (24), weight written and copied out (4 in bf16).
constexpr double kHostBytesPerParameter = 36;
// Gradient, p, m, v read; p, m, v, weight written.
constexpr double kDeviceBytesPerParameter = 30;
// Logits written (2), widened (2 + 4), read for the maximum, the sum and the label (4 + 4).
constexpr double kBytesPerLogit = 16;
// torch's Adam against ours on the same core: fitted to the published run at 100 % offload.
constexpr double kReferenceAdam = 0.84;

double part(int size) { return static_cast<double>(size - 1) / static_cast<double>(size); }

class Rates {
 public:
  Rates(const Plan& plan, const recipe::Machine& machine)
      : plan_(plan), m_(machine), devices_(std::max<std::int64_t>(1, machine.devices_per_node)) {}

  // `bytes` that a rank sends to the next one of a ring of `size` ranks, `stride` apart. Over nodes
  // the ranks that share a node share its adapters.
  double ring(double bytes, int size, int stride) const {
    if (bytes <= 0 || size <= 1 || m_.intra_gbps <= 0) return 0;
    double gbps = m_.intra_gbps;
    if (static_cast<std::int64_t>(size) * stride > devices_ && m_.inter_gbps > 0) {
      const auto neighbours = static_cast<double>(std::max<std::int64_t>(1, devices_ / stride));
      gbps = std::min(gbps, neighbours * m_.inter_gbps);
    }
    return bytes / (gbps * 1e9) + latency();
  }

  // `bytes` spread evenly over `size` ranks, `stride` apart, oneself included: inside the node and
  // out of it at the same time.
  double exchange(double bytes, int size, int stride) const {
    if (bytes <= 0 || size <= 1 || m_.intra_gbps <= 0) return 0;
    const auto all = static_cast<double>(size);
    const double near =
        m_.inter_gbps <= 0
            ? all
            : std::min(all, static_cast<double>(std::max<std::int64_t>(1, devices_ / stride)));
    const double inside = bytes * (near - 1) / all / m_.intra_gbps;
    const double outside = near < all ? bytes * (all - near) / all / m_.inter_gbps : 0;
    return std::max(inside, outside) * 1e-9 + latency();
  }

  double message(double bytes, int distance) const {
    if (bytes <= 0 || m_.intra_gbps <= 0) return 0;
    const bool inside = distance < devices_ || m_.inter_gbps <= 0;
    return bytes / ((inside ? m_.intra_gbps : m_.inter_gbps) * 1e9) + latency();
  }

  double products(double flops) const { return flops / (m_.device_tflops * 1e12); }
  double passes(double bytes) const {
    return m_.device_gbps > 0 ? bytes / (m_.device_gbps * 1e9) : 0;
  }
  double link(double bytes) const { return m_.link_gbps > 0 ? bytes / (m_.link_gbps * 1e9) : 0; }
  double latency() const { return m_.collective_latency_us * 1e-6; }

  double tokens() const {
    return static_cast<double>(plan_.batch.micro_batch * plan_.model.seq_length /
                               plan_.topology.context);
  }

 private:
  const Plan& plan_;
  const recipe::Machine& m_;
  std::int64_t devices_;
};

// Elements per token that one layer's forward reads and writes in memory, on one rank.
double pass_width(const Plan& plan, bool moe) {
  const ModelSpec& m = plan.model;
  const Topology& t = plan.topology;
  const LatentAttention& l = m.latent;
  const double tensor = t.tensor, sliced = t.sequence_parallel ? t.tensor : 1;
  const auto h = static_cast<double>(m.hidden), heads = static_cast<double>(m.heads);
  const auto groups = static_cast<double>(m.query_groups), head = static_cast<double>(m.head_dim);
  const bool latent = l.kv_rank > 0;
  const double query_key = static_cast<double>(l.qk_dim + l.rotary_dim);
  const double q = (latent ? heads * query_key : heads * head) / tensor;
  const double k = (latent ? heads * query_key : groups * head) / tensor;
  const double v = (latent ? heads * static_cast<double>(l.v_dim) : groups * head) / tensor;
  // Two norms read and write; two additions read two and write one.
  double width = 10 * h / sliced;
  // Projected in, written; rotated and normalised in place; attended; projected out.
  width += h + (q + k + v) + (m.qk_norm ? 4 : 2) * (q + k) + (q + k + v + q) + (q + h);
  const double gates = m.gated ? 2 : 1;
  if (moe) {
    const double rows = static_cast<double>(m.experts_per_token) * t.expert_tensor / sliced;
    const double f = static_cast<double>(m.expert_ffn) / t.expert_tensor;
    // A copy per expert written, read by the products, their result written, read for the sum; with
    // an exchange, sorted by expert behind it and back before it.
    width += 2 * h / sliced + rows * ((t.expert > 1 ? 8 : 4) * h + (2 * gates + 2) * f);
  }
  const auto dense = static_cast<double>(moe ? m.shared_expert_ffn : m.ffn) / tensor;
  if (dense > 0) width += 2 * h + (2 * gates + 2) * dense;
  return width;
}

LayerCost layer_cost(const Plan& plan, const Rates& rates, int layer, bool recomputed) {
  const ModelSpec& m = plan.model;
  const Topology& t = plan.topology;
  const auto e = static_cast<double>(size_of(m.compute));
  const bool moe = m.experts > 0 && m.layer_is_moe[static_cast<std::size_t>(layer - 1)];
  const double flops = 2 * (attention_macs_per_token(m) + mlp_macs_per_token(m, moe)) / t.tensor;
  const double tokens = rates.tokens(), row = static_cast<double>(m.hidden) * e;
  const double own =
      rates.products(tokens * flops) + rates.passes(tokens * e * pass_width(plan, moe));
  // Sums over the tensor ranks are a reduce-scatter and an all-gather each; sliced tokens go to
  // whole experts as they are. There and back to the experts. The same again in backward.
  const int sums = moe && t.sequence_parallel ? 1 : 2;
  double traffic = sums * rates.ring(tokens * 2 * part(t.tensor) * row, t.tensor, 1);
  if (moe) {
    const double rows =
        static_cast<double>(m.experts_per_token) / (t.sequence_parallel ? t.tensor : 1);
    traffic += 2 * rates.exchange(tokens * rows * row, t.expert, t.expert_tensor);
    traffic += 2 * rates.ring(tokens * rows * row * (t.expert_tensor - 1), t.expert_tensor, 1);
  }
  LayerCost cost;
  cost.layer = layer;
  cost.forward_s = own + traffic;
  cost.backward_s = 2 * own + traffic + (recomputed ? cost.forward_s : 0);
  return cost;
}

LayerCost head_cost(const Plan& plan, const Rates& rates) {
  const ModelSpec& m = plan.model;
  const double rows = static_cast<double>(m.padded_vocab) / plan.topology.tensor;
  const double flops = 2 * static_cast<double>(m.hidden) * rows;
  LayerCost cost;
  cost.layer = static_cast<int>(m.num_layers) + 1;
  cost.forward_s =
      rates.products(rates.tokens() * flops) + rates.passes(rates.tokens() * rows * kBytesPerLogit);
  cost.backward_s = 2 * cost.forward_s;
  return cost;
}

}  // namespace

StageCost stage_cost(const Plan& plan, int stage_index, const recipe::Machine& machine) {
  const Rates rates(plan, machine);
  const ModelSpec& m = plan.model;
  const Topology& t = plan.topology;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  StageCost cost;
  for (int c = 0; c < t.chunks; ++c) {
    std::vector<LayerCost>& layers = cost.chunks.emplace_back();
    if (stage.embedding && c == 0) layers.push_back({0, 0.0, 0.0, 0.0});
    std::int64_t index = 0;
    for (const int layer : layers_of_chunk(stage, c)) {
      const bool recomputed = plan.recompute.full && index < plan.recompute.layers;
      layers.push_back(layer_cost(plan, rates, layer, recomputed));
      if (plan.activations.enabled && index < plan.activations.layers) {
        layers.back().moved_s = rates.link(static_cast<double>(layer_moved_bytes(plan, layer)));
      }
      ++index;
    }
    if (stage.head && c == t.chunks - 1) layers.push_back(head_cost(plan, rates));
  }
  if (t.pipeline > 1) {
    cost.message_s = rates.message(rates.tokens() * static_cast<double>(m.hidden) *
                                       static_cast<double>(size_of(m.compute)) / t.tensor,
                                   t.world / t.pipeline);
  }
  for (const FlatBuffer& buffer : stage.buffers) {
    const int group = t.size(buffer.expert ? Group::expert_data : Group::data);
    const int stride = buffer.expert ? t.expert * t.expert_tensor : t.tensor;
    const auto elements = static_cast<double>(buffer.size) * part(group);
    const double extra =
        group > 1 ? rates.latency() * static_cast<double>(buffer.buckets.size() - 1) : 0;
    cost.reduce_s += rates.ring(elements * static_cast<double>(size_of(plan.optimizer.gradients)),
                                group, stride) +
                     extra;
    cost.gather_s +=
        rates.ring(elements * static_cast<double>(size_of(buffer.dtype)), group, stride) + extra;
  }
  return cost;
}

StepCost step_cost(const Plan& plan, const recipe::Machine& machine, bool reference) {
  StepCost cost;
  const auto devices = static_cast<double>(std::max<std::int64_t>(1, machine.devices_per_node));
  const double threads =
      reference ? kReferenceAdam : std::max(1.0, static_cast<double>(machine.host_cores) / devices);
  double gparams = threads * machine.host_core_gparams;
  if (machine.host_gbps > 0) {
    gparams = std::min(gparams, machine.host_gbps / devices / kHostBytesPerParameter);
  }
  if (machine.device_gbps > 0) {
    cost.device_s = kDeviceBytesPerParameter / (machine.device_gbps * 1e9);
  }
  if (gparams > 0) cost.host_s = 1.0 / (gparams * 1e9);
  if (machine.link_gbps > 0) {
    cost.down_s =
        static_cast<double>(size_of(plan.optimizer.gradients)) / (machine.link_gbps * 1e9);
    // The reference copies fp32 masters up and rounds on the device; we send weights, and masters
    // too where they stay there.
    const bool masters = !plan.optimizer.offload_masters && plan.model.compute != DType::f32;
    const double ours = static_cast<double>(size_of(plan.model.compute)) + (masters ? 4.0 : 0.0);
    cost.up_s = (reference ? 4.0 : ours) / (machine.link_gbps * 1e9);
  }
  return cost;
}

}  // namespace rr::plan
