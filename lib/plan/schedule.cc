// Pipeline schedules as explicit lists of steps (PipeDream-Flush / 1F1B; megatron.md 8.1).
#include <algorithm>

#include "plan/plan.h"

namespace rr::plan {

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::receive_forward:
      return "receive_forward";
    case StepKind::forward:
      return "forward";
    case StepKind::send_forward:
      return "send_forward";
    case StepKind::receive_backward:
      return "receive_backward";
    case StepKind::backward:
      return "backward";
    case StepKind::send_backward:
      return "send_backward";
  }
  return "?";
}

namespace {

// Appends the steps of one stage, leaving out messages over the model's two ends.
class StageSteps {
 public:
  StageSteps(int stages, int stage, int chunks = 1)
      : first_(stage == 0), last_(stage == stages - 1), chunks_(chunks) {
    RR_CHECK(stage >= 0 && stage < stages, std::to_string(stage));
  }

  void forward(int micro_batch, int chunk = 0) {
    if (!first_ || chunk > 0) steps_.push_back({StepKind::receive_forward, micro_batch, chunk});
    steps_.push_back({StepKind::forward, micro_batch, chunk});
    if (!last_ || chunk < chunks_ - 1) {
      steps_.push_back({StepKind::send_forward, micro_batch, chunk});
    }
  }

  void backward(int micro_batch, int chunk = 0) {
    if (!last_ || chunk < chunks_ - 1) {
      steps_.push_back({StepKind::receive_backward, micro_batch, chunk});
    }
    steps_.push_back({StepKind::backward, micro_batch, chunk});
    if (!first_ || chunk > 0) steps_.push_back({StepKind::send_backward, micro_batch, chunk});
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  bool first_, last_;
  int chunks_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> training_schedule(int stages, int stage, int micro_batches) {
  StageSteps steps(stages, stage);
  const int warmup = std::min(stages - stage - 1, micro_batches);
  for (int i = 0; i < warmup; ++i) steps.forward(i);
  for (int i = warmup; i < micro_batches; ++i) {
    steps.forward(i);
    steps.backward(i - warmup);
  }
  for (int i = micro_batches - warmup; i < micro_batches; ++i) steps.backward(i);
  return steps.take();
}

std::vector<Step> interleaved_schedule(int stages, int stage, int chunks, int micro_batches,
                                       int group) {
  // Units of work in forward order; the backward of the k-th runs the mirrored chunk.
  std::vector<std::pair<int, int>> units;  // (micro-batch, chunk)
  for (int begin = 0; begin < micro_batches; begin += group) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = begin; i < std::min(begin + group, micro_batches); ++i) {
        units.emplace_back(i, chunk);
      }
    }
  }
  StageSteps steps(stages, stage, chunks);
  const auto backward = [&](std::size_t k) {
    steps.backward(units[k].first, chunks - 1 - units[k].second);
  };
  const std::size_t warmup = std::min(
      static_cast<std::size_t>(2 * (stages - stage - 1) + (chunks - 1) * group), units.size());
  for (std::size_t k = 0; k < units.size(); ++k) {
    steps.forward(units[k].first, units[k].second);
    if (k >= warmup) backward(k - warmup);
  }
  for (std::size_t k = units.size() - warmup; k < units.size(); ++k) backward(k);
  return steps.take();
}

std::vector<Step> evaluation_schedule(int stages, int stage, int micro_batches) {
  StageSteps steps(stages, stage);
  for (int i = 0; i < micro_batches; ++i) steps.forward(i);
  return steps.take();
}

}  // namespace rr::plan
