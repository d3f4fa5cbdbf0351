// One optimizer step of the whole job, and one evaluation.
#pragma once

#include <cstdint>

#include "optim/optim.h"
#include "train/build.h"

namespace rr::train {

struct StepReport {
  double loss = 0;            // mean token loss of the step, all replicas; known to every rank
  double load_balancing = 0;  // mean over MoE layers, micro-batches and replicas
  double z = 0;
  bool has_moe = false;
  int signal = 0;            // a signal some rank received, agreed on by all; 0: none
  bool out_of_time = false;  // batch.exit_after_minutes have passed, by the clock of rank 0
  optim::StepResult optimizer;
};

// Iteration `iteration` (from 1). Throws JobFailed on all ranks when loss or gradient is not
// finite, after one rank named iteration and rank; the weights are then those before the step.
StepReport train_step(Runtime& runtime, std::int64_t iteration);

struct Evaluation {
  double loss = 0;  // mean token loss over plan.batch.eval_iters batches
  int signal = 0;   // a signal cut it short, agreed on by all; 0: none
};

// Over the same samples every time.
Evaluation evaluate(Runtime& runtime);

}  // namespace rr::train
