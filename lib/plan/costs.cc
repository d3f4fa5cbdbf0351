// Times from sizes and a machine's rates: no fitted constants here.
#include "plan/costs.h"

#include <algorithm>

#include "plan/stage_parameters.h"

namespace rr::plan {

namespace {

// Bytes per parameter that host memory moves in one Adam step: gradient staged and read (8), p, m
// and v read and written (24), weight written and copied out (4 in bf16).
constexpr double kHostBytesPerParameter = 36;
// Gradient, p, m, v read; p, m, v, weight written.
constexpr double kDeviceBytesPerParameter = 30;

class Rates {
 public:
  Rates(const Plan& plan, const recipe::Machine& machine) : plan_(plan), machine_(machine) {}

  // Seconds for `bytes` over a group whose ranks span `span` neighbours.
  double transfer(double bytes, int span) const {
    const bool inside = span <= machine_.devices_per_node;
    const double gbps =
        inside || machine_.inter_gbps <= 0 ? machine_.intra_gbps : machine_.inter_gbps;
    if (bytes <= 0 || gbps <= 0) return 0;
    return bytes / (gbps * 1e9) + machine_.collective_latency_us * 1e-6;
  }

  double compute(double flops) const { return flops / (machine_.device_tflops * 1e12); }

  double tokens() const {
    return static_cast<double>(plan_.batch.micro_batch * plan_.model.seq_length /
                               plan_.topology.context);
  }

 private:
  const Plan& plan_;
  const recipe::Machine& machine_;
};

double part(int size) { return static_cast<double>(size - 1) / static_cast<double>(size); }

double layer_seconds(const Plan& plan, const Rates& rates, int layer) {
  const ModelSpec& m = plan.model;
  const Topology& t = plan.topology;
  const auto h = static_cast<double>(m.hidden);
  const double tokens = rates.tokens();
  const bool moe = m.experts > 0 && m.layer_is_moe[static_cast<std::size_t>(layer - 1)];
  const double flops = 2 * (attention_macs_per_token(m) + mlp_macs_per_token(m, moe));
  const double hidden_bytes = tokens * h * static_cast<double>(size_of(m.compute));
  double seconds = rates.compute(tokens * flops / t.tensor);
  // Two sums over the tensor ranks, each a reduce-scatter and an all-gather.
  if (t.tensor > 1) seconds += 2 * rates.transfer(2 * part(t.tensor) * hidden_bytes, t.tensor);
  if (moe && t.expert > 1) {
    const double rows =
        static_cast<double>(m.experts_per_token) / (t.sequence_parallel ? t.tensor : 1);
    seconds += 2 * rates.transfer(rows * hidden_bytes * part(t.expert), t.expert * t.expert_tensor);
  }
  return seconds;
}

}  // namespace

double StageCost::forward_s(int chunk) const {
  double sum = 0;
  for (const LayerCost& layer : chunks[static_cast<std::size_t>(chunk)]) sum += layer.forward_s;
  return sum;
}

StageCost stage_cost(const Plan& plan, int stage_index, const recipe::Machine& machine) {
  const Rates rates(plan, machine);
  const ModelSpec& m = plan.model;
  const Topology& t = plan.topology;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  StageCost cost;
  if (plan.recompute.full) cost.backward_factor = 3;
  for (int c = 0; c < t.chunks; ++c) {
    std::vector<LayerCost>& layers = cost.chunks.emplace_back();
    if (stage.embedding && c == 0) layers.push_back({0, 0.0});
    for (const int layer : layers_of_chunk(stage, c)) {
      layers.push_back({layer, layer_seconds(plan, rates, layer)});
    }
    if (stage.head && c == t.chunks - 1) {
      const double flops = 2 * static_cast<double>(m.hidden) * static_cast<double>(m.padded_vocab);
      layers.push_back(
          {static_cast<int>(m.num_layers) + 1, rates.compute(rates.tokens() * flops / t.tensor)});
    }
  }
  const int stage_size = t.world / t.pipeline;
  if (t.pipeline > 1) {
    cost.message_s = rates.transfer(rates.tokens() * static_cast<double>(m.hidden) *
                                        static_cast<double>(size_of(m.compute)) / t.tensor,
                                    2 * stage_size);
  }
  for (const FlatBuffer& buffer : stage.buffers) {
    const int group = t.size(buffer.expert ? Group::expert_data : Group::data);
    const auto elements = static_cast<double>(buffer.size) * part(group);
    cost.reduce_s += rates.transfer(elements * 4, stage_size);
    cost.gather_s +=
        rates.transfer(elements * static_cast<double>(size_of(buffer.dtype)), stage_size);
  }
  return cost;
}

StepCost step_cost(const Plan& plan, const recipe::Machine& machine, bool one_thread) {
  StepCost cost;
  const auto devices = static_cast<double>(std::max<std::int64_t>(1, machine.devices_per_node));
  const auto threads =
      one_thread ? 1.0 : std::max(1.0, static_cast<double>(machine.host_cores) / devices);
  double gparams = threads * machine.host_core_gparams;
  if (machine.host_gbps > 0) {
    gparams = std::min(gparams, machine.host_gbps / devices / kHostBytesPerParameter);
  }
  if (machine.device_gbps > 0) {
    cost.device_s = kDeviceBytesPerParameter / (machine.device_gbps * 1e9);
  }
  if (gparams > 0) cost.host_s = 1.0 / (gparams * 1e9);
  if (machine.link_gbps > 0) {
    cost.down_s = 4.0 / (machine.link_gbps * 1e9);
    // The reference copies fp32 masters up and rounds on the device.
    const double up = one_thread ? 4.0 : static_cast<double>(size_of(plan.model.compute));
    cost.up_s = up / (machine.link_gbps * 1e9);
  }
  return cost;
}

}  // namespace rr::plan
