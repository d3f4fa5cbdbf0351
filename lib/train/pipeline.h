// Executes the Plan's step lists: one rank's part of a pipeline schedule.
#pragma once

#include <cstdint>

#include "model/model.h"
#include "train/build.h"

namespace rr::train {

struct Losses {
  double sum = 0, num_tokens = 0;  // of this rank's micro-batches; last stage only
};

// Forward and backward of all micro-batches of the step that starts after `consumed` samples.
Losses run_training_schedule(Runtime& runtime, std::int64_t consumed);

// Forward only, over the validation samples from `consumed` on.
Losses run_evaluation_schedule(Runtime& runtime, std::int64_t consumed);

}  // namespace rr::train
