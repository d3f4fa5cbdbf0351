// Bytes that one rank sends in one step, by kind of message.
#include <fmt/format.h>

#include "base/text.h"
#include "plan/activations.h"
#include "plan/planner.h"
#include "plan/stage_parameters.h"

namespace rr::plan {

namespace {

struct Traffic {
  double reduce = 0, gather = 0;  // gradients, weights: data parallel
  double pipeline = 0, experts = 0, tensor = 0;
  double down = 0, up = 0;  // optimizer: device to host and back
  double activations = 0;   // each way
};

double part(int size) { return static_cast<double>(size - 1) / static_cast<double>(size); }

Traffic traffic_of(const Plan& plan, int stage_index) {
  const Topology& t = plan.topology;
  const ModelSpec& m = plan.model;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  const auto e = static_cast<double>(size_of(m.compute));
  const double micro_batches = plan.batch.num_micro_batches;
  const double hidden_bytes = static_cast<double>(plan.batch.micro_batch * m.seq_length) /
                              t.context * static_cast<double>(m.hidden) * e;
  Traffic traffic;
  for (const FlatBuffer& buffer : stage.buffers) {
    const double away = static_cast<double>(buffer.size) *
                        part(t.size(buffer.expert ? Group::expert_data : Group::data));
    traffic.reduce += static_cast<double>(size_of(plan.optimizer.gradients)) * away;
    traffic.gather += static_cast<double>(size_of(buffer.dtype)) * away;
  }
  // Forward to the next stage and backward to the one before, for every chunk.
  const int ends = (stage.embedding ? 1 : 0) + (stage.head ? 1 : 0);
  if (t.pipeline > 1) traffic.pipeline = micro_batches * (2 * t.chunks - ends) * hidden_bytes;
  const int sequence = t.sequence_parallel ? t.tensor : 1;
  for (const int layer : stage.layers) {
    const bool moe = m.experts > 0 && m.layer_is_moe[static_cast<std::size_t>(layer - 1)];
    // Dispatch and combine, forward and backward.
    if (moe) {
      traffic.experts += micro_batches * 4 * part(t.expert) * hidden_bytes *
                         static_cast<double>(m.experts_per_token) / sequence;
    }
    // Sliced tokens go to whole experts as they are: only attention gathers and scatters.
    const int sums = moe && t.sequence_parallel ? 1 : 2;
    traffic.tensor += micro_batches * 2 * sums * 2 * part(t.tensor) * hidden_bytes;
  }
  const RankPlan rank = rank_plan(plan, stage_index * (t.world / t.pipeline));
  traffic.down = static_cast<double>(size_of(plan.optimizer.gradients)) *
                 static_cast<double>(rank.offloaded_elements);
  traffic.up = e * static_cast<double>(rank.offloaded_elements);
  if (plan.activations.enabled) {
    std::int64_t bytes = 0;
    for (int c = 0; c < t.chunks; ++c) {
      std::int64_t n = 0;
      for (const int layer : layers_of_chunk(stage, c)) {
        if (n++ < plan.activations.layers) bytes += layer_moved_bytes(plan, layer);
      }
    }
    traffic.activations = micro_batches * static_cast<double>(bytes);
  }
  return traffic;
}

}  // namespace

std::string traffic_text(const Plan& plan) {
  std::string text;
  for (int s = 0; s < plan.topology.pipeline; ++s) {
    const Traffic t = traffic_of(plan, s);
    std::vector<std::string> parts;
    const auto add = [&](const char* what, double bytes) {
      if (bytes > 0) {
        parts.push_back(fmt::format("{} {}", what, format_bytes(static_cast<std::int64_t>(bytes))));
      }
    };
    add("gradients", t.reduce);
    add("weights", t.gather);
    add("pipeline", t.pipeline);
    add("experts", t.experts);
    add("tensor", t.tensor);
    add("optimizer to host", t.down);
    add("optimizer to device", t.up);
    add("activations each way", t.activations);
    if (!parts.empty()) text += fmt::format("  stage {}: {}\n", s, join(parts, ", "));
  }
  return text.empty() ? text : "sent by a rank per step:\n" + text;
}

}  // namespace rr::plan
