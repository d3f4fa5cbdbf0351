// The world of an MPI test program: made once by main, used by every case on all ranks.
//
// A case tagged [npN] runs on N ranks, the same statements in the same order on each. A failing
// rank tells its failure with its rank and ends the whole job, so that no peer waits for it.
#pragma once

#include <vector>

#include "comm/comm.h"

namespace rr::test {

comm::World& world();

// World ranks 0 .. size - 1.
inline std::vector<int> all_ranks() {
  std::vector<int> ranks;
  for (int rank = 0; rank < world().size(); ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace rr::test
