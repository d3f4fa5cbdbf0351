// The whole program behind main(): parse, then answer or train.
#pragma once

#include <string>
#include <vector>

#include "comm/comm.h"

namespace rr::app {

// Returns the exit code; the same on every rank unless one fails alone, which throws.
int run(const std::string& program, const std::vector<std::string>& arguments, comm::World& world);

}  // namespace rr::app
