// Bytes that one rank sends in one step, by kind of message, and how long it waits.
#include "plan/traffic.h"

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

Traffic traffic(const Plan& plan, int stage_index) {
  const Topology& t = plan.topology;
  const ModelSpec& m = plan.model;
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  const auto e = static_cast<double>(size_of(m.compute));
  const double micro_batches = plan.batch.num_micro_batches;
  const double hidden_bytes = static_cast<double>(plan.batch.micro_batch * m.seq_length) /
                              t.context * static_cast<double>(m.hidden) * e;
  Traffic sent;
  for (const FlatBuffer& buffer : stage.buffers) {
    const double away = static_cast<double>(buffer.size) *
                        part(t.size(buffer.expert ? Group::expert_data : Group::data));
    sent.reduce += static_cast<double>(size_of(plan.optimizer.gradients)) * away;
    sent.gather += static_cast<double>(size_of(buffer.dtype)) * away;
  }
  // Forward to the next stage and backward to the one before, for every chunk.
  const int ends = (stage.embedding ? 1 : 0) + (stage.head ? 1 : 0);
  if (t.pipeline > 1) sent.pipeline = micro_batches * (2 * t.chunks - ends) * hidden_bytes;
  const int sequence = t.sequence_parallel ? t.tensor : 1;
  for (const int layer : stage.layers) {
    const bool moe = m.experts > 0 && m.layer_is_moe[static_cast<std::size_t>(layer - 1)];
    // Dispatch and combine, forward and backward.
    if (moe) {
      sent.experts += micro_batches * 4 * part(t.expert) * hidden_bytes *
                      static_cast<double>(m.experts_per_token) / sequence;
    }
    // Sliced tokens go to whole experts as they are: only attention gathers and scatters.
    const int sums = moe && t.sequence_parallel ? 1 : 2;
    sent.tensor += micro_batches * 2 * sums * 2 * part(t.tensor) * hidden_bytes;
  }
  const RankPlan rank = rank_plan(plan, stage_index * (t.world / t.pipeline));
  sent.down = static_cast<double>(size_of(plan.optimizer.gradients)) *
              static_cast<double>(rank.offloaded_elements);
  sent.up = e * static_cast<double>(rank.offloaded_elements);
  if (plan.activations.enabled) {
    std::int64_t bytes = 0;
    for (int c = 0; c < t.chunks; ++c) {
      std::int64_t n = 0;
      for (const int layer : layers_of_chunk(stage, c)) {
        if (n++ < plan.activations.layers) bytes += layer_moved_bytes(plan, layer);
      }
    }
    sent.activations = micro_batches * static_cast<double>(bytes);
  }
  return sent;
}

}  // namespace

std::vector<std::pair<const char*, double>> traffic_of(const Plan& plan, int stage) {
  const Traffic sent = traffic(plan, stage);
  return {{"gradients", sent.reduce},       {"weights", sent.gather},
          {"pipeline", sent.pipeline},      {"experts", sent.experts},
          {"tensor", sent.tensor},          {"optimizer to host", sent.down},
          {"optimizer to device", sent.up}, {"activations each way", sent.activations}};
}

double bubble_of(const Plan& plan) {
  const int stages = plan.topology.pipeline;
  const int slots = plan.batch.num_micro_batches * plan.topology.chunks + stages - 1;
  return static_cast<double>(stages - 1) / static_cast<double>(slots);
}

std::string traffic_text(const Plan& plan) {
  std::string text;
  for (int s = 0; s < plan.topology.pipeline; ++s) {
    std::vector<std::string> parts;
    for (const auto& [what, bytes] : traffic_of(plan, s)) {
      if (bytes <= 0) continue;
      parts.push_back(fmt::format("{} {}", what, format_bytes(static_cast<std::int64_t>(bytes))));
    }
    if (!parts.empty()) text += fmt::format("  stage {}: {}\n", s, join(parts, ", "));
  }
  return text.empty() ? text : "sent by a rank per step:\n" + text;
}

}  // namespace rr::plan
