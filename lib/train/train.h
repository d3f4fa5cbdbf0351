// Training: builds the runtime objects from the Plan in one visible order and runs the loop.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/comm.h"
#include "plan/plan.h"

namespace rr::train {

struct Options {
  bool progress_bar = false;  // a terminal of a single process
};

// While training, the first INT, TERM, USR1 or USR2 raises a flag that all ranks agree on between
// iterations, of training and of evaluation. The second ends the process at once, and so does the
// first before training. Call before MPI starts.
void install_signal_handlers();

// Runs the whole plan on this rank. Returns the exit code, the same on all ranks: 0 done, 1 a
// failure, 2 data or folders that cannot be used, 128 + n stopped by signal n. What one rank alone
// throws (a full disk, a failed collective) is for the caller to abort the job with.
int run(const plan::Plan& plan, comm::World& world, const Options& options);

// Every rank throws it at the same place; the message was already printed by one rank.
struct JobFailed {
  int exit_code = 1;
};

// Runs `work` on this rank, then asks all ranks of `world` whether theirs succeeded, so that no one
// waits for a rank that failed. If any threw, the lowest of them prints its message and every rank
// throws JobFailed: code 2 if the printed one was a UsageError, else 1. Collective over `world`.
void together(comm::Communicator& world, const std::function<void()>& work);

// What this machine sustains, as the host of a run and as the device of a CPU build.
struct MachineRates {
  int cores = 1;                  // that this process may use
  std::int64_t memory_bytes = 0;  // that it may use
  double stream_gbps = 0;         // bytes read and written by all cores
  double copy_gbps = 0;           // bytes that one core copies
  double core_gparams = 0;        // Adam on one core, 1e9 parameters per second
  double matmul_tflops = 0;       // torch's fp32 matrix product on all cores
  double wake_us = 0;             // until a sleeping thread runs after it was woken
};
// Measures for about two seconds, with less than 1 GiB of memory. Sets torch's threads.
MachineRates measure_machine();

}  // namespace rr::train
