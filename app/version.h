// Versions of the program and of what it is built with.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rr::app {

// {"run_recipe", "0.1.0"}, {"git", ...}, ...: name and version, in the order they are shown.
std::vector<std::pair<std::string, std::string>> versions();

}  // namespace rr::app
