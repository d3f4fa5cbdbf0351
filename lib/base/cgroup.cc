// Reads CPU quotas of control groups, version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
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

// The smallest quota of `path` and the groups above it, the root included.
std::optional<double> smallest_quota(const std::string& root, std::string path, bool version2) {
  std::optional<double> cores;
  while (true) {
    if (const auto own = quota_of(root + path, version2))
      cores = std::min(cores.value_or(*own), *own);
    if (path.empty()) return cores;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

bool has_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

std::optional<double> cgroup_cores(const std::string& membership, const std::string& mount) {
  std::optional<double> cores;
  std::istringstream lines(membership);
  std::string line;
  while (std::getline(lines, line)) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && !has_cpu(controllers)) continue;
    const std::string root = version2 ? mount : mount + "/" + controllers;
    const auto found = smallest_quota(root, line.substr(second + 1), version2);
    if (found) cores = std::min(cores.value_or(*found), *found);
  }
  return cores;
}

}  // namespace rr
