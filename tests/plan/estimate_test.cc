// Predicted step times, and what to change when it does not fit.
#include <catch2/catch.hpp>

#include "plan/specs.h"

using namespace rr;
using namespace rr::plan;
using namespace rr::plan::testing;

namespace {

// The published layout with 32 sequences a step.
Plan qwen3_on_16(double fraction, bool overlap) {
  Plan plan = hand_made(qwen3_30b_a3b(), topology(2, 2, 4, 4));
  plan.topology.sequence_parallel = true;
  plan.batch.global_batch = 32;
  plan.batch.num_micro_batches = 8;
  plan.optimizer.cpu_offload = fraction > 0;
  plan.optimizer.fraction = fraction;
  plan.optimizer.overlap = overlap;
  return plan;
}

recipe::Machine h100_node() { return recipe::load_machine("h100_sxm", {RR_SOURCE_DIR}); }

}  // namespace

TEST_CASE("all cores and overlapped copies make the offloaded step shorter") {
  const recipe::Machine machine = h100_node();
  const double megatron = estimate(qwen3_on_16(1, true), machine, OffloadPolicy::megatron).step_ms;
  const double serial = estimate(qwen3_on_16(1, false), machine).step_ms;
  const double overlapped = estimate(qwen3_on_16(1, true), machine).step_ms;
  CHECK(serial < 0.7 * megatron);
  CHECK(overlapped < serial);
  // The host steps after the last gradient and before the next forward: its time is seen in full.
  const Estimate e = estimate(qwen3_on_16(1, true), machine);
  const double none = estimate(qwen3_on_16(0, true), machine).step_ms;
  CHECK(overlapped > none + 0.95 * e.host_adam_ms);
  CHECK(overlapped < none + e.host_adam_ms + e.d2h_ms + e.h2d_ms);
}

TEST_CASE("activations that a slow link brings back late are waited for") {
  Plan plan = hand_made(tiny_moe(), topology(1, 1, 1, 1));
  plan.batch.num_micro_batches = 4;
  recipe::Machine machine;
  machine.device_tflops = 1e-3;
  machine.host_core_gparams = 1;
  machine.link_gbps = 1000;
  const double without = estimate(plan, machine).step_ms;
  plan.activations.enabled = true;
  plan.activations.layers = 3;
  CHECK(estimate(plan, machine).step_ms == Approx(without).epsilon(0.01));
  machine.link_gbps = 0.01;
  double bytes = 0;
  for (const MemoryItem& item : rank_plan(plan, 0).memory) {
    if (item.what == "offloaded activations") bytes = static_cast<double>(item.bytes);
  }
  REQUIRE(bytes > 0);
  // Out and back for each of four micro-batches, and little of it is hidden.
  const double copies = 4 * 2 * bytes / 0.01e9 * 1e3;
  CHECK(estimate(plan, machine).step_ms > 0.9 * copies);
  CHECK(estimate(plan, machine).step_ms < without + copies);
}

TEST_CASE("the estimate of one stage is compute, and of more stages adds the bubble") {
  recipe::Machine machine;
  machine.device_tflops = 1;
  machine.link_gbps = machine.host_core_gparams = 1;
  Plan one = hand_made(tiny_moe(), topology(1, 1, 1, 1));
  one.batch.num_micro_batches = 4;
  const double flops = one.flops_per_token * static_cast<double>(one.model.seq_length) * 4;
  CHECK(estimate(one, machine).step_ms == Approx(1e3 * flops / 1e12).epsilon(1e-6));
  // Without the head both stages of an even model are alike: (M + PP - 1) / M.
  ModelSpec even = tiny_moe();
  even.layer_is_moe.assign(4, false);
  even.experts = 0;
  even.padded_vocab = even.vocab = 1;
  even.hidden = 256;
  Plan two = hand_made(even, topology(1, 2, 1, 1));
  two.batch.num_micro_batches = 4;
  const Estimate e = estimate(two, machine);
  CHECK(e.step_ms == Approx(e.compute_ms * 5 / 4).epsilon(0.01));
}

TEST_CASE("the smallest fraction that fits fits, and a hundredth less does not") {
  recipe::Machine machine = h100_node();
  Plan plan = qwen3_on_16(0, false);
  machine.device_bytes = 48'000'000'000;
  const std::optional<double> fraction = smallest_fraction(plan, machine);
  REQUIRE(fraction);
  const auto largest = [&](double f) {
    plan.optimizer.cpu_offload = true;
    plan.optimizer.fraction = f;
    return rank_plan(plan, 0).bytes(Pool::device);
  };
  CHECK(largest(*fraction) <= machine.device_bytes);
  CHECK(largest(*fraction - 0.01) > machine.device_bytes);
  machine.device_bytes = 10'000'000'000;
  CHECK_FALSE(smallest_fraction(plan, machine));
  machine.device_bytes = 48'000'000'000;
  machine.host_bytes = 1'000'000'000;
  CHECK_FALSE(smallest_fraction(plan, machine));
}
