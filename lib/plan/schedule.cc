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

// Appends the steps of one stage, leaving out messages over the pipeline's ends.
class StageSteps {
 public:
  StageSteps(int stages, int stage) : first_(stage == 0), last_(stage == stages - 1) {
    RR_CHECK(stage >= 0 && stage < stages, std::to_string(stage));
  }

  void forward(int micro_batch) {
    if (!first_) steps_.push_back({StepKind::receive_forward, micro_batch, 0});
    steps_.push_back({StepKind::forward, micro_batch, 0});
    if (!last_) steps_.push_back({StepKind::send_forward, micro_batch, 0});
  }

  void backward(int micro_batch) {
    if (!last_) steps_.push_back({StepKind::receive_backward, micro_batch, 0});
    steps_.push_back({StepKind::backward, micro_batch, 0});
    if (!first_) steps_.push_back({StepKind::send_backward, micro_batch, 0});
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  bool first_, last_;
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

std::vector<Step> evaluation_schedule(int stages, int stage, int micro_batches) {
  StageSteps steps(stages, stage);
  for (int i = 0; i < micro_batches; ++i) steps.forward(i);
  return steps.take();
}

}  // namespace rr::plan
