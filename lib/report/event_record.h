// Records of a TensorBoard event file (ecosystem.md 2.4), without protobuf; a private header of
// report.
#pragma once

#include <cstdint>
#include <string>

namespace rr::report {

// The first record of a file.
std::string version_record(double wall_time);

// One scalar. The value is stored as a float; beyond its range it becomes infinite.
std::string scalar_record(const std::string& tag, double value, std::int64_t step,
                          double wall_time);

}  // namespace rr::report
