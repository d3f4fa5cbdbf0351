// Training: builds the runtime objects from the Plan in one visible order and runs the loop.
#pragma once

#include "comm/comm.h"
#include "plan/plan.h"

namespace rr::train {

struct Options {
  bool progress_bar = false;  // a terminal of a single process
};

// Runs the whole plan on this rank. Returns the exit code: 0 done, 1 failure agreed on by all ranks.
// Throws UsageError (data files, run folder), Error or anything else from one rank alone.
int run(const plan::Plan& plan, comm::World& world, const Options& options);

}  // namespace rr::train
