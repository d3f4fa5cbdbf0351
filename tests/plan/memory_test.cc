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

// Of items that are exact: weights, gradients, optimizer state.
std::int64_t state_bytes(const Plan& plan, int rank, Pool pool = Pool::device) {
  std::int64_t sum = 0;
  for (const MemoryItem& item : rank_plan(plan, rank).memory) {
    if (item.pool == pool && item.exact) sum += item.bytes;
  }
  return sum;
}

std::int64_t item_bytes(const RankPlan& rank, const std::string& what) {
  std::int64_t sum = 0;
  for (const MemoryItem& item : rank.memory) {
    if (item.what == what) sum += item.bytes;
  }
  return sum;
}

}  // namespace

TEST_CASE("Qwen3-30B-A3B on 16 ranks needs 46.98 GB of state, as published") {
  const Plan plan = hand_made(qwen3_30b_a3b(), topology(2, 2, 4, 4));
  CHECK(plan.total_parameters == 30'532'122'624);
  CHECK(plan.active_parameters / 1'000'000 == 3'353);
  CHECK(plan.stages[0].num_parameters / 1'000'000 == 4'012);
  const double gb = static_cast<double>(state_bytes(plan, 0)) / 1e9;
  CHECK(gb == Approx(46.98).margin(0.005));
  // Both stages are one rank class but for the final norm.
  CHECK(static_cast<double>(state_bytes(plan, 15)) / 1e9 == Approx(46.98).margin(0.005));
}

TEST_CASE("with masters on the device the published savings come back within 1 %") {
  const Plan plan = hand_made(qwen3_30b_a3b(), topology(2, 2, 4, 4));
  const std::int64_t all = state_bytes(plan, 0);
  const double published[] = {3.8, 7.6, 11.5, 15.3};
  for (int quarter = 1; quarter <= 4; ++quarter) {
    const std::int64_t left = state_bytes(offloaded(plan, quarter / 4.0, false), 0);
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
        CHECK(state_bytes(plan, r) - state_bytes(moved, r) ==
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

TEST_CASE("activations follow the schedule's depth, offload moves them, recompute drops them") {
  Plan plan = hand_made(tiny_moe(), topology(1, 4, 1, 1));
  const auto bytes = [&](int rank, int micro_batches, const char* what = "activations") {
    plan.batch.num_micro_batches = micro_batches;
    return item_bytes(rank_plan(plan, rank), what);
  };
  // What one micro-batch keeps; gradients under way come on top, once.
  const std::int64_t kept = bytes(0, 2) - bytes(0, 1);
  CHECK(kept > 0);
  CHECK(bytes(0, 8) == bytes(0, 1) + 3 * kept);
  CHECK(bytes(2, 8) == bytes(0, 1) + kept);  // layers 1 and 3 are alike
  const std::int64_t working = bytes(0, 1) - kept;
  plan.activations.enabled = true;
  plan.activations.layers = 1;
  const std::int64_t moved = bytes(0, 1, "offloaded activations");
  CHECK(bytes(0, 2, "offloaded activations") == 2 * moved);
  const std::int64_t stays = plan.model.seq_length * (2 + plan.model.heads) * 4;
  CHECK(moved == kept - stays);
  CHECK(bytes(0, 2) == working + moved + 2 * stays);  // one of them is back for its backward
  plan.activations.min_elements = 1 << 20;
  CHECK(bytes(0, 2, "offloaded activations") == 0);
  plan.activations.enabled = false;
  plan.recompute = {true, 1};
  const std::int64_t input = plan.model.seq_length * plan.model.hidden * 4;
  CHECK(bytes(0, 2) == 2 * input + kept + working);
}

TEST_CASE("offloaded layers come back when the later ones have gone") {
  ModelSpec model = tiny_moe();
  model.num_layers = 8;
  model.layer_is_moe.assign(8, true);
  Plan plan = hand_made(model, topology(1, 1, 1, 1));
  const auto bytes = [&](std::int64_t layers) {
    plan.activations.enabled = layers > 0;
    plan.activations.layers = layers;
    return item_bytes(rank_plan(plan, 0), "activations");
  };
  const std::int64_t moved = bytes(0) - bytes(1);
  CHECK(moved > 0);
  CHECK(bytes(0) - bytes(5) == 5 * moved);
  // Of the last two layers one is needed and the next on its way: more offload gains nothing.
  CHECK(bytes(0) - bytes(7) < 7 * moved);
  CHECK(bytes(0) - bytes(7) > 5 * moved);
}

TEST_CASE("a layer keeps what its backward reads") {
  ModelSpec model = tiny_moe();
  model.num_layers = 1;
  model.experts = 0;
  model.layer_is_moe = {false};
  Plan plan = hand_made(model, topology(1, 1, 1, 1));
  plan.batch.micro_batch = 2;
  plan.activations.enabled = true;
  plan.activations.layers = 1;
  // Norms in and out 4 H, fused and rotated heads 2 (q + 2 kv), attention q, gate and up 2 F, F.
  const std::int64_t elements = 4 * 32 + 2 * (32 + 2 * 16) + 32 + 3 * 96;
  CHECK(item_bytes(rank_plan(plan, 0), "offloaded activations") == 2 * 16 * elements * 4);
}

TEST_CASE("sequence and tensor parallelism divide what a layer keeps") {
  ModelSpec model = tiny_moe();
  model.experts = 0;
  model.layer_is_moe.assign(4, false);
  Plan one = hand_made(model, topology(1, 1, 1, 1));
  Plan two = hand_made(model, topology(2, 1, 1, 1));
  const std::int64_t whole = item_bytes(rank_plan(one, 0), "activations");
  const std::int64_t plain = item_bytes(rank_plan(two, 0), "activations");
  two.topology.sequence_parallel = true;
  const std::int64_t sliced = item_bytes(rank_plan(two, 0), "activations");
  CHECK(whole > plain);
  CHECK(plain > sliced);
  CHECK(static_cast<double>(sliced) == Approx(static_cast<double>(whole) / 2).epsilon(0.02));
}
