// The Plan as text: stable, so that golden files can hold it.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/planner.h"
#include "plan/rank_classes.h"
#include "plan/traffic.h"

namespace rr::plan {

namespace {

constexpr int kMostRanksListed = 32;
constexpr std::size_t kMostStepsListed = 48;

// {1, 2, 3, 7} -> "1-3, 7".
std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end - i == 1 ? fmt::format("{}", numbers[i])
                         : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text.empty() ? "-" : text;
}

std::string model_line(const Plan& plan) {
  std::string text = fmt::format("model: {} parameters", format_count(plan.total_parameters));
  if (plan.active_parameters != plan.total_parameters) {
    text += fmt::format(", {} active per token", format_count(plan.active_parameters));
  }
  const double flops = plan.flops_per_token;
  text += flops >= 1e8 ? fmt::format(", {:.3f} GFLOP per token", flops / 1e9)
                       : fmt::format(", {:.3f} MFLOP per token", flops / 1e6);
  text += fmt::format(", {}\n", name_of(plan.model.compute));
  if (plan.model.padded_vocab != plan.model.vocab) {
    text += fmt::format(" > padded vocab (size: {}) with {} dummy tokens (new size: {})\n",
                        plan.model.vocab, plan.model.padded_vocab - plan.model.vocab,
                        plan.model.padded_vocab);
  }
  return text;
}

// As the reference counts: what the rank's tensors hold, tied copies and padded rows included.
std::int64_t elements_held(const StagePlan& stage) {
  std::int64_t count = 0;
  for (const Parameter& p : stage.parameters) count += p.size;
  return count;
}

std::string parameter_lines(const Plan& plan) {
  std::string text;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (int t = 0; t < plan.topology.tensor; ++t) {
      text += fmt::format(
          " > number of parameters on (tensor, pipeline) model parallel rank ({}, {}): {}\n", t, s,
          elements_held(plan.stages[s]));
    }
  }
  return text;
}

std::string stage_lines(const Plan& plan) {
  std::string text;
  const int stage_size = plan.topology.world / plan.topology.pipeline;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    const int first = static_cast<int>(s) * stage_size;
    text += fmt::format("stage {}: rank{} {}: {}layer{} {}{}\n", s, stage_size == 1 ? "" : "s",
                        stage_size == 1 ? fmt::format("{}", first)
                                        : fmt::format("{}-{}", first, first + stage_size - 1),
                        stage.embedding ? "embedding, " : "", stage.layers.size() == 1 ? "" : "s",
                        ranges_text(stage.layers), stage.head ? ", final norm and head" : "");
    for (const FlatBuffer& buffer : stage.buffers) {
      const Group group = buffer.expert ? Group::expert_data : Group::data;
      text += fmt::format("  {} buffer: {} {} in {} bucket{}, each over {} rank{}\n",
                          buffer.expert ? "expert" : "dense", format_count(buffer.size),
                          name_of(buffer.dtype), buffer.buckets.size(),
                          buffer.buckets.size() == 1 ? "" : "s", plan.topology.size(group),
                          plan.topology.size(group) == 1 ? "" : "s");
    }
  }
  return text;
}

std::string rank_lines(const Plan& plan) {
  const Topology& t = plan.topology;
  if (t.world == 1) return "";
  if (t.world > kMostRanksListed) {
    return fmt::format("ranks: tp fastest, then cp, dp, pp; ep folds over one stage ({} ranks)\n",
                       t.world / t.pipeline);
  }
  const bool experts = plan.model.experts > 0;
  std::string text = fmt::format("rank  tp cp dp pp{}\n", experts ? "  ep edp  experts" : "");
  const auto local = static_cast<int>(plan.model.experts / t.expert);
  for (int r = 0; r < t.world; ++r) {
    const Coordinates at = t.coordinates(r);
    text += fmt::format("{:>4}  {:>2} {:>2} {:>2} {:>2}", r, at.tensor, at.context, at.data,
                        at.pipeline);
    if (experts) {
      const int first = at.expert * local;
      text += fmt::format(
          "  {:>2} {:>3}  {}", at.expert, at.expert_data,
          local == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + local - 1));
    }
    text += "\n";
  }
  return text;
}

// Consecutive forwards and backwards of one stage, without the messages: "F0 F1 B0", with
// chunks "F0.0 F0.1".
std::string compute_steps(const std::vector<Step>& steps, int chunks) {
  std::string text;
  std::size_t count = 0;
  for (const Step& step : steps) {
    const bool forward = step.kind == StepKind::forward;
    if (!forward && step.kind != StepKind::backward) continue;
    if (count == kMostStepsListed) return text + " ...";
    text += fmt::format("{}{}{}", count == 0 ? "" : " ", forward ? 'F' : 'B', step.micro_batch);
    if (chunks > 1) text += fmt::format(".{}", step.chunk);
    ++count;
  }
  return text;
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789@%+=:,./_-") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string layout_text(const Plan& plan) {
  const Topology& t = plan.topology;
  std::string text = model_line(plan);
  text += fmt::format("layout: {} rank{} = tensor {} x context {} x data {} x pipeline {}", t.world,
                      t.world == 1 ? "" : "s", t.tensor, t.context, t.data, t.pipeline);
  if (plan.model.experts > 0) {
    text += fmt::format(" = expert-tensor {} x expert {} x expert-data {} x pipeline {}",
                        t.expert_tensor, t.expert, t.expert_data, t.pipeline);
  }
  return text + "\n" + parameter_lines(plan) + stage_lines(plan) + rank_lines(plan);
}

std::string memory_text(const Plan& plan) {
  std::string text = "memory per rank, planned:\n";
  for (const RankClass& entry : rank_classes(plan)) {
    const RankPlan& rank = entry.example;
    text += fmt::format("rank{} {} (stage {}): {} of {} shard elements on the host\n",
                        entry.ranks.size() == 1 ? "" : "s", ranges_text(entry.ranks), rank.stage,
                        format_count(rank.offloaded_elements), format_count(rank.shard_elements));
    for (const Pool pool : {Pool::device, Pool::host}) {
      for (const MemoryItem& item : rank.memory) {
        if (item.pool != pool) continue;
        const bool routed = plan.topology.expert > 1 && item.what.ends_with("activations");
        text += fmt::format("  {:<6} {:<22} {:>18} B  {}{}\n", name_of(pool), item.what,
                            format_count(item.bytes), format_bytes(item.bytes),
                            item.exact ? ""
                            : routed   ? " (estimate, balanced routing)"
                                       : " (estimate)");
      }
      if (rank.bytes(pool) == 0) continue;
      text += fmt::format("  {:<6} {:<22} {:>18} B  {}\n", name_of(pool), "total",
                          format_count(rank.bytes(pool)), format_bytes(rank.bytes(pool)));
    }
  }
  return text;
}

std::string schedule_text(const Plan& plan) {
  const BatchPlan& batch = plan.batch;
  const int stages = plan.topology.pipeline;
  std::string text =
      fmt::format("setting number of microbatches to constant {}\n", batch.num_micro_batches);
  text += fmt::format("batch: {} sequences of {} tokens = {} micro-batch{} of {} on {} replica{}\n",
                      batch.global_batch, plan.model.seq_length, batch.num_micro_batches,
                      batch.num_micro_batches == 1 ? "" : "es", batch.micro_batch,
                      plan.topology.data, plan.topology.data == 1 ? "" : "s");
  text += fmt::format("iterations: {}", batch.train_iters);
  if (batch.eval_interval > 0) {
    text += fmt::format(", an evaluation of {} batches of {} every {}", batch.eval_iters,
                        batch.eval_global_batch, batch.eval_interval);
  }
  text += "\n";
  if (stages == 1) return text;
  const int chunks = plan.topology.chunks;
  text += fmt::format("schedule: {} over {} stages, {:.1f} % of the time is bubble\n",
                      chunks == 1 ? "1F1B" : fmt::format("interleaved 1F1B, {} chunks,", chunks),
                      stages, 100.0 * bubble_of(plan));
  for (int s = 0; s < std::min(stages, kMostRanksListed); ++s) {
    text += fmt::format("  stage {}: {}\n", s, compute_steps(stage_schedule(plan, s), chunks));
  }
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text;
  if (!plan.changes.empty()) text += "settings that differ from their defaults:\n" + plan.changes;
  text += layout_text(plan) + memory_text(plan) + schedule_text(plan) + traffic_text(plan);
  text += plan.prediction;
  if (!plan.launch.empty()) text += "launch: " + plan.launch + "\n";
  return text;
}

std::string launch_line(int world_size, const std::string& program,
                        const std::vector<std::string>& recipe_arguments) {
  std::string line = world_size > 1 ? fmt::format("mpirun -n {} ", world_size) : "";
  line += shell_word(program);
  for (const std::string& argument : recipe_arguments) line += " " + shell_word(argument);
  return line;
}

}  // namespace rr::plan
