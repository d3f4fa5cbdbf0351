// How many threads a rank runs on.
#pragma once

#include "comm/comm.h"

namespace rr::train {

// Collective. The cores this rank may use, shared evenly among the ranks of its node that may use
// the same ones (bound ranks have their own); OMP_NUM_THREADS, when set, wins. Rank 0 prints the
// count and, with `offload`, warns when it makes the host's Adam slow.
int choose_threads(comm::World& world, comm::Communicator& everyone, bool offload);

}  // namespace rr::train
