// What the nodes of a job offer their ranks: cores and memory.
#pragma once

#include "comm/comm.h"
#include "plan/plan.h"

namespace rr::train {

// Collective. The cores this rank may use, shared evenly among the ranks of its node that may use
// the same ones (bound ranks have their own); OMP_NUM_THREADS, when set, wins. Rank 0 prints the
// count and, with `offload`, warns when it makes the host's Adam slow.
int choose_threads(comm::World& world, comm::Communicator& everyone, bool offload);

// Collective, before anything is allocated. Throws JobFailed on all ranks where the ranks of a node
// need more than the process may use of its memory; on a CPU, device and host share it.
void check_memory(comm::Communicator& everyone, const plan::RankPlan& rank);

}  // namespace rr::train
