// Decisions that all ranks must share: a failure of one rank ends the job on all of them, with one
// message, before anyone waits in a collective the failed rank will never join.
#pragma once

#include <functional>

#include "comm/comm.h"

namespace rr::train {

// Every rank throws it at the same place; the message was already printed by one rank.
struct JobFailed {
  int exit_code = 1;
};

// Runs `work` on this rank, then asks all ranks of `world` whether theirs succeeded. If any threw,
// the lowest of them prints its message and every rank throws JobFailed: code 2 if the printed one
// was a UsageError, else 1. Collective over `world`.
void together(comm::Communicator& world, const std::function<void()>& work);

}  // namespace rr::train
