// Private to plan: one rank's optimizer shard, cut into ranges with a home each.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace rr::plan {

// In forward order (by the bucket's first layer, dense before expert); ranges do not overlap, never
// cross a bucket, and together are this rank's slice of every bucket.
std::vector<ShardRange> shard_with_homes(const Plan& plan, int stage, const Coordinates& at);

}  // namespace rr::plan
