// Versions, all given by the build (CMakeLists.txt); none is written here.
#include "app/version.h"

#include "git_hash.h"

namespace rr::app {

std::vector<std::pair<std::string, std::string>> versions() {
  return {{"run_recipe", RR_VERSION},  {"git", RR_GIT_HASH},  {"compiler", RR_CXX_COMPILER},
          {"torch", RR_TORCH_VERSION}, {"device", RR_DEVICE}, {"mpi", RR_MPI_VERSION}};
}

}  // namespace rr::app
