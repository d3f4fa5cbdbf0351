// Reads limits of control groups, version 2 (cpu.max, memory.max) and version 1
// (cpu.cfs_quota_us, memory.limit_in_bytes).
#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace rr {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// `quota period` in microseconds; "max" or a quota of -1 means no limit.
std::optional<double> ratio(const std::string& text) {
  std::istringstream in(text);
  double quota = 0;
  double period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_of(const std::string& folder, bool version2) {
  if (version2) return ratio(read_text(folder + "/cpu.max"));
  return ratio(read_text(folder + "/cpu.cfs_quota_us") + " " +
               read_text(folder + "/cpu.cfs_period_us"));
}

// "max" is no number. Version 1 writes a number beyond all memory for no limit.
std::optional<std::int64_t> memory_of(const std::string& folder, bool version2) {
  std::istringstream in(read_text(folder + (version2 ? "/memory.max" : "/memory.limit_in_bytes")));
  std::int64_t bytes = 0;
  if (!(in >> bytes) || bytes <= 0) return std::nullopt;
  return bytes;
}

// The smallest value of `path` and the groups above it, the root included.
template <class T, class Read>
std::optional<T> smallest_above(const std::string& root, std::string path, const Read& read) {
  std::optional<T> smallest;
  while (true) {
    if (const std::optional<T> own = read(root + path))
      smallest = std::min(smallest.value_or(*own), *own);
    if (path.empty()) return smallest;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

// The smallest value over the hierarchies that hold `controller`.
template <class T, class Read>
std::optional<T> smallest_limit(const std::string& membership, const std::string& mount,
                                const std::string& controller, const Read& read) {
  std::optional<T> smallest;
  std::istringstream lines(membership);
  std::string line;
  while (std::getline(lines, line)) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos)
      continue;
    const std::string root = version2 ? mount : mount + "/" + controllers;
    const auto found =
        smallest_above<T>(root, line.substr(second + 1),
                          [&](const std::string& folder) { return read(folder, version2); });
    if (found) smallest = std::min(smallest.value_or(*found), *found);
  }
  return smallest;
}

}  // namespace

std::optional<double> cgroup_cores(const std::string& membership, const std::string& mount) {
  return smallest_limit<double>(membership, mount, "cpu", quota_of);
}

std::optional<std::int64_t> cgroup_memory(const std::string& membership, const std::string& mount) {
  return smallest_limit<std::int64_t>(membership, mount, "memory", memory_of);
}

std::string own_cgroup() { return read_text("/proc/self/cgroup"); }

}  // namespace rr
