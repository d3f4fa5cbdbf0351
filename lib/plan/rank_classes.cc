// Grouping by the bytes of every memory item.
#include "plan/rank_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace rr::plan {

namespace {

constexpr int kMostRanksInspected = 256;

std::string class_key(const RankPlan& rank) {
  std::string key;
  for (const MemoryItem& item : rank.memory) {
    key += fmt::format("{}/{}={};", name_of(item.pool), item.what, item.bytes);
  }
  return key;
}

}  // namespace

std::vector<RankClass> rank_classes(const Plan& plan) {
  const Topology& t = plan.topology;
  const int stage_size = t.world / t.pipeline;
  const bool all = t.world <= kMostRanksInspected &&
                   plan.optimizer.placement == OptimizerPlan::Placement::megatron;
  std::map<std::string, RankClass> by_key;
  for (int r = 0; r < t.world; r += all ? 1 : stage_size) {
    RankPlan rank = rank_plan(plan, r);
    RankClass& entry = by_key[class_key(rank)];
    if (entry.ranks.empty()) entry.example = std::move(rank);
    for (int same = r; same < r + (all ? 1 : stage_size); ++same) entry.ranks.push_back(same);
  }
  std::vector<RankClass> classes;
  for (auto& [key, entry] : by_key) classes.push_back(std::move(entry));
  std::sort(classes.begin(), classes.end(), [](const RankClass& a, const RankClass& b) {
    const std::int64_t bytes_a = a.example.bytes(Pool::device);
    const std::int64_t bytes_b = b.example.bytes(Pool::device);
    return bytes_a != bytes_b ? bytes_a > bytes_b : a.ranks.front() < b.ranks.front();
  });
  return classes;
}

}  // namespace rr::plan
