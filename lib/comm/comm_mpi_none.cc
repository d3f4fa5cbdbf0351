// The build without MPI: says which option builds it.
#include "comm/comm.h"

namespace rr::comm {

std::unique_ptr<World> make_mpi_world(const Options& /*options*/) {
  throw Error("this build has no MPI: configure with -DRR_MPI=ON");
}

}  // namespace rr::comm
