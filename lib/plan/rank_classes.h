// Private to plan: ranks that need the same memory, grouped.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace rr::plan {

struct RankClass {
  std::vector<int> ranks;
  RankPlan example;
};
// Largest device pool first. One rank stands for its stage, since the shards of a group are equal;
// only the reference's placement lets them differ a little, and is looked at rank by rank in worlds
// of up to 256.
std::vector<RankClass> rank_classes(const Plan& plan);

}  // namespace rr::plan
