// optimizer.optimizer_offload_fraction=auto: from a machine to a number, its price, or a refusal.
#include <algorithm>
#include <catch2/catch.hpp>

#include "plan/planner.h"

using namespace rr;
using namespace rr::plan;

namespace {

const std::vector<std::string> kPaths = {std::string(RR_TEST_DATA) + "/plan", RR_SOURCE_DIR};

recipe::Recipe recipe_with(const std::vector<std::string>& overrides) {
  recipe::Request request;
  request.recipe = "qwen3_30b_a3b_pretrain";
  request.overrides = overrides;
  request.search_paths = kPaths;
  recipe::Recipe recipe = recipe::load(request);
  for (const Problem& problem : recipe.problems) UNSCOPED_INFO(to_string(problem));
  REQUIRE_FALSE(recipe.has_errors());
  return recipe;
}

recipe::Machine with_memory(std::int64_t device_bytes) {
  recipe::Machine machine = recipe::load_machine("h100_sxm", kPaths);
  machine.device_bytes = device_bytes;
  return machine;
}

const std::string kAuto = "optimizer.optimizer_offload_fraction=auto";

std::string refusal(const recipe::Recipe& recipe, const recipe::Machine& machine) {
  try {
    make_plan(recipe, machine);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("auto is the smallest fraction that fits, the same for the same machine") {
  const recipe::Recipe recipe = recipe_with({kAuto});
  const recipe::Machine machine = with_memory(40'000'000'000);
  const Plan plan = make_plan(recipe, machine);
  CHECK(plan.optimizer.cpu_offload);
  CHECK(plan.optimizer.overlap);
  CHECK(plan.optimizer.offload_masters);
  CHECK(plan.optimizer.fraction > 0.1);
  CHECK(plan.optimizer.fraction < 0.9);
  const auto largest = [](const Plan& made) {
    return std::max(rank_plan(made, 0).bytes(Pool::device),
                    rank_plan(made, 15).bytes(Pool::device));
  };
  CHECK(largest(plan) <= machine.device_bytes);
  Plan less = plan;
  less.optimizer.fraction -= 0.01;
  CHECK(largest(less) > machine.device_bytes);
  CHECK(to_text(make_plan(recipe, machine)) == to_text(plan));

  // It is the plan of the number.
  const std::string number = std::to_string(plan.optimizer.fraction);
  const Plan same = make_plan(recipe_with({"optimizer.optimizer_cpu_offload=true",
                                           "optimizer.optimizer_offload_fraction=" + number,
                                           "optimizer.overlap_cpu_optimizer_d2h_h2d=true"}),
                              machine);
  CHECK(memory_text(same) == memory_text(plan));
  CHECK(same.prediction == plan.prediction);
}

TEST_CASE(
    "the number that auto stands for is in the configuration and the changes, with its price") {
  const Plan plan = make_plan(recipe_with({kAuto}), with_memory(40'000'000'000));
  const std::string number = std::to_string(plan.optimizer.fraction).substr(0, 4);
  CHECK(has(plan.config_yaml,
            "optimizer_offload_fraction: " + number + "  # derived from auto on machine h100_sxm"));
  CHECK_FALSE(has(plan.config_yaml, "fraction: auto"));
  CHECK(
      has(plan.changes, "optimizer_offload_fraction: " + number +
                            "  # auto: the smallest that fits machine h100_sxm; predicted step "));
  CHECK(has(plan.changes, " times that without offload"));
}

TEST_CASE("auto offloads nothing where all fits") {
  const Plan plan = make_plan(recipe_with({kAuto}), with_memory(84'000'000'000));
  CHECK_FALSE(plan.optimizer.cpu_offload);
  CHECK(plan.optimizer.fraction == 0);
  CHECK(rank_plan(plan, 0).offloaded_elements == 0);
  CHECK(has(plan.changes, "optimizer_offload_fraction: 0  # auto"));
}

TEST_CASE("auto is refused with the numbers where even everything moved does not fit") {
  const recipe::Recipe recipe = recipe_with({kAuto});
  const std::string device = refusal(recipe, with_memory(20'000'000'000));
  CHECK(has(device, "machine h100_sxm has 20.00 GB of device memory"));
  CHECK(has(device, "at 1.0 rank"));
  CHECK(has(device, "too much"));
  CHECK(has(device, "model.pipeline_model_parallel_size=4"));
  recipe::Machine machine = with_memory(30'000'000'000);
  machine.host_bytes = 64'000'000'000;
  CHECK(has(refusal(recipe, machine), "a node needs"));
}

TEST_CASE("auto without a machine is refused with what to do") {
  const std::string text = refusal(recipe_with({kAuto}), recipe::Machine{});
  CHECK(has(text, "optimizer.optimizer_offload_fraction (override 1)"));
  CHECK(has(text, "this run has no machine"));
  CHECK(has(text, "--machine"));
  CHECK(has(text, "--dry-run"));
}

TEST_CASE("what a person chose beside auto stands") {
  const Plan plan = make_plan(recipe_with({kAuto, "optimizer.offload_masters=false",
                                           "optimizer.overlap_cpu_optimizer_d2h_h2d=false"}),
                              with_memory(40'000'000'000));
  CHECK_FALSE(plan.optimizer.overlap);
  CHECK_FALSE(plan.optimizer.offload_masters);
  CHECK(plan.optimizer.fraction > 0.3);  // 8 instead of 12 bytes an element
  const Plan off = make_plan(recipe_with({kAuto, "optimizer.optimizer_cpu_offload=false"}),
                             with_memory(40'000'000'000));
  CHECK_FALSE(off.optimizer.cpu_offload);
}
