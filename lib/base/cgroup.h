// The limits of the control group a process is in; a private header of base, for its test.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rr {

// Cores that the quota allows, or nothing when there is none. `membership` is the text of
// /proc/self/cgroup, `mount` is where the hierarchies are mounted (/sys/fs/cgroup). Version 2
// groups inherit the smallest quota on the way to the root. In a container the membership may name
// a folder that is not visible; the mount's own root then holds the quota.
std::optional<double> cgroup_cores(const std::string& membership, const std::string& mount);

// Bytes of memory that the group may use, found in the same way.
std::optional<std::int64_t> cgroup_memory(const std::string& membership, const std::string& mount);

// The text of /proc/self/cgroup.
std::string own_cgroup();

}  // namespace rr
