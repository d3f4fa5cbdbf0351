// Bytes per rank and pool, against the layout and against the published run.
#include <catch2/catch.hpp>

#include "plan/specs.h"

using namespace rr;
using namespace rr::plan;
using namespace rr::plan::testing;

namespace {

Plan offloaded(Plan plan, double fraction, bool masters) {
  plan.optimizer.cpu_offload = fraction > 0;
  plan.optimizer.fraction = fraction;
  plan.optimizer.offload_masters = masters;
  return plan;
}

std::int64_t device_bytes(const Plan& plan, int rank) {
  return rank_plan(plan, rank).bytes(Pool::device);
}

}  // namespace

TEST_CASE("Qwen3-30B-A3B on 16 ranks needs 46.98 GB of state, as published") {
  const Plan plan = hand_made(qwen3_30b_a3b(), topology(2, 2, 4, 4));
  CHECK(plan.total_parameters == 30'532'122'624);
  CHECK(plan.active_parameters / 1'000'000 == 3'353);
  CHECK(plan.stages[0].num_parameters / 1'000'000 == 4'012);
  const double gb = static_cast<double>(device_bytes(plan, 0)) / 1e9;
  CHECK(gb == Approx(46.98).margin(0.005));
  // Both stages are one rank class but for the final norm.
  CHECK(static_cast<double>(device_bytes(plan, 15)) / 1e9 == Approx(46.98).margin(0.005));
}

TEST_CASE("with masters on the device the published savings come back within 1 %") {
  const Plan plan = hand_made(qwen3_30b_a3b(), topology(2, 2, 4, 4));
  const std::int64_t all = device_bytes(plan, 0);
  const double published[] = {3.8, 7.6, 11.5, 15.3};
  for (int quarter = 1; quarter <= 4; ++quarter) {
    const std::int64_t left = device_bytes(offloaded(plan, quarter / 4.0, false), 0);
    CHECK(static_cast<double>(all - left) / 1e9 == Approx(published[quarter - 1]).epsilon(0.01));
  }
}

TEST_CASE("moving masters too saves 12 bytes per moved element in bf16 and 8 in fp32") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    ModelSpec model = tiny_moe();
    model.compute = dtype;
    const Plan plan = hand_made(model, topology(1, 2, 2, 2), 20000);
    for (const double fraction : {0.25, 0.5, 1.0}) {
      const Plan moved = offloaded(plan, fraction, true);
      for (int r = 0; r < plan.topology.world; ++r) {
        const RankPlan rank = rank_plan(moved, r);
        CHECK(device_bytes(plan, r) - rank.bytes(Pool::device) ==
              rank.offloaded_elements * (dtype == DType::bf16 ? 12 : 8));
        CHECK(rank.bytes(Pool::host) == rank.offloaded_elements * (dtype == DType::bf16 ? 18 : 16));
      }
    }
    CHECK(rank_plan(plan, 0).bytes(Pool::host) == 0);
  }
}

TEST_CASE("the ranges of a state layout lie apart in every slab and fill it") {
  ModelSpec model = tiny_moe();
  model.compute = DType::bf16;
  const Plan plan = offloaded(hand_made(model, topology(1, 2, 2, 2), 20000), 0.4, false);
  for (int r = 0; r < plan.topology.world; ++r) {
    const RankPlan rank = rank_plan(plan, r);
    const StateLayout layout = state_layout(plan, rank);
    REQUIRE(layout.offsets.size() == rank.shard.size());
    for (int i = 0; i < kNumSlabs; ++i) {
      const auto slab = static_cast<Slab>(i);
      std::int64_t end = 0;
      for (std::size_t k = 0; k < rank.shard.size(); ++k) {
        if (layout.offset(k, slab) < 0) continue;
        CHECK(layout.offset(k, slab) == end);
        CHECK(end % 128 == 0);
        end += (rank.shard[k].end - rank.shard[k].begin) * (slab == Slab::host_weight ? 2 : 4);
      }
      CHECK(end == layout.size(slab));
    }
    CHECK(layout.size(Slab::device_master) == 4 * rank.shard_elements);
    CHECK(layout.size(Slab::host_master) == 4 * rank.offloaded_elements);
  }
}
