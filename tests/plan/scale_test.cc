// Plans of large worlds: what is kept grows with the model and its stages, never with the ranks.
#include <catch2/catch.hpp>

#include "plan/planner.h"

using namespace rr;
using namespace rr::plan;

namespace {

Plan plan_of(const std::string& name, int world, const std::vector<std::string>& overrides) {
  recipe::Request request;
  request.recipe = name;
  request.world_size = world;
  request.overrides = overrides;
  request.search_paths = {RR_SOURCE_DIR};
  const recipe::Recipe recipe = recipe::load(request);
  for (const Problem& problem : recipe.problems) UNSCOPED_INFO(to_string(problem));
  REQUIRE_FALSE(recipe.has_errors());
  return make_plan(recipe, recipe::load_machine("h100_sxm", request.search_paths));
}

// Everything of a Plan that has a length.
struct Lengths {
  std::size_t stages = 0, layers = 0, parameters = 0, names = 0, buffers = 0, buckets = 0;
  std::size_t shard = 0, steps = 0, memory = 0, text = 0;
  bool operator==(const Lengths&) const = default;
};

Lengths lengths_of(const Plan& plan) {
  Lengths n;
  n.stages = plan.stages.size();
  for (const StagePlan& stage : plan.stages) {
    n.layers += stage.layers.size();
    n.parameters += stage.parameters.size();
    for (const Parameter& p : stage.parameters) n.names += p.name.size() + p.init_name.size();
    n.buffers += stage.buffers.size();
    for (const FlatBuffer& buffer : stage.buffers) n.buckets += buffer.buckets.size();
  }
  const RankPlan rank = rank_plan(plan, 0);
  n.shard = rank.shard.size();
  n.steps = rank.training.size() + rank.evaluation.size();
  n.memory = rank.memory.size();
  return n;
}

}  // namespace

TEST_CASE("a plan for 16,384 ranks is as long as one for 64") {
  // The same work a rank: 4 ranks hold a copy of the model, each copy has one micro-batch.
  const auto make = [](int world) {
    return plan_of("qwen3_30b_a3b_pretrain", world,
                   {"train.micro_batch_size=1", "ddp.bucket_size=40000000",
                    "train.global_batch_size=" + std::to_string(world / 4)});
  };
  const Plan small = make(64), large = make(16384);
  CHECK(large.topology.data == 256 * small.topology.data);
  CHECK(lengths_of(large) == lengths_of(small));
  // The printed texts differ by digits, and by the table of ranks, which large worlds leave out.
  CHECK(to_text(large).size() < to_text(small).size() + 1000);
  CHECK(large.config_yaml.size() < small.config_yaml.size() + 100);
  // No rank's slices are looked at but those asked for: the last one is as quick as the first.
  CHECK(rank_plan(large, 16383).shard_elements == rank_plan(large, 8192).shard_elements);
}

TEST_CASE("405B dense and 1T of experts are planned for 16,384 ranks") {
  const Plan dense = plan_of("llama3_405b_pretrain", 16384, {});
  CHECK(dense.total_parameters == 405'853'388'800);
  CHECK(dense.stages.front().layers.size() == 7);  // the embedding counts as a layer
  CHECK(dense.stages.back().layers.size() == 7);
  const Plan experts = plan_of("moe_1t_pretrain", 16384, {});
  CHECK(experts.total_parameters > 1'000'000'000'000);
  CHECK(experts.active_parameters < 40'000'000'000);
  for (const Plan* plan : {&dense, &experts}) {
    // Every parameter once over tensor ranks, stages and experts: padding apart, what the model
    // has.
    double held = 0;
    for (const StagePlan& stage : plan->stages) {
      for (const Parameter& p : stage.parameters) {
        const double copies = p.expert ? plan->topology.expert : 1;
        held += static_cast<double>(p.size) * copies * (p.split >= 0 ? plan->topology.tensor : 1);
      }
    }
    CHECK(held == Approx(static_cast<double>(plan->total_parameters)).epsilon(1e-6));
    CHECK(to_text(*plan).size() < 100'000);
  }
}
