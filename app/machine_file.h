// Measures this machine and writes what it found as a machine file.
#pragma once

#include <string>

namespace rr::app {

// Writes `path` as load_machine reads it, each number with its source. Returns what to tell the
// user. Throws UsageError when `path` is a file that this did not write, Error when it cannot be
// written.
std::string write_machine_file(const std::string& path);

}  // namespace rr::app
