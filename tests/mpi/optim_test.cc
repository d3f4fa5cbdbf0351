// The optimizer over ranks: every layout gives the bits of one rank that adds the replicas'
// gradients up itself, wherever the state lives and however late the copies are.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "mpi/world.h"
#include "optim/golden.h"
#include "optim/job.h"

namespace rr::optim {
namespace {

using namespace testing;
using rr::test::world;

struct Case {
  Layout layout;
  bool tied = false;
  DType compute = DType::f32;
  double fraction = 0;
  bool overlap = false;
  bool sharded = true;
  double clip = 0;  // off: the norm's last bits depend on the layout
  int delay_us = 0;
};

struct Outcome {
  std::vector<double> norms, weight_norms, zeros;
  std::map<std::string, std::vector<float>> weights;  // of this rank
};

plan::Plan plan_of(const Case& c, const Layout& layout) {
  plan::Plan plan = make_small_plan(layout, c.tied, c.compute);
  if (c.fraction > 0) set_fraction(plan, c.fraction);
  plan.optimizer.overlap = c.overlap;
  plan.optimizer.sharded = c.sharded;
  plan.optimizer.clip = c.clip;
  plan.log.params_norm = plan.log.num_zeros = true;
  return plan;
}

Outcome run(const Case& c, bool alone = false, int steps = 4) {
  auto device = device::make_cpu_device();
  if (c.delay_us > 0) {
    const auto seed = static_cast<std::uint64_t>(world().rank() + 1);
    device =
        device::make_faulty_device(std::move(device), {.seed = seed, .max_delay_us = c.delay_us});
  }
  const auto self = comm::make_self_world();
  Job job(plan_of(c, alone ? Layout{} : c.layout), alone ? *self : world(), std::move(device), 1,
          3000);
  job.optimizer->initialize();
  Outcome outcome;
  for (int t = 1; t <= steps; ++t) {
    job.optimizer->begin();
    if (alone) {
      fill_summed_gradients(job, c.layout, t);
    } else {
      fill_gradients(job, t);
    }
    report_ready(job);
    const StepResult result = job.optimizer->step(input_of(t));
    REQUIRE(result.finite);
    outcome.norms.push_back(result.grad_norm);
    outcome.weight_norms.push_back(result.params_norm);
    outcome.zeros.push_back(result.num_zeros);
    for (const plan::Parameter& p : job.stage().parameters) job.optimizer->wait_for(p.layer);
  }
  job.optimizer->finish();
  outcome.weights = job.weights();
  if (alone) return outcome;
  CHECK(job.device->copies().d2h_bytes == steps * 4 * job.rank.offloaded_elements);
  CHECK(job.device->usage(Pool::device).now == planned_bytes(job.rank, Pool::device));
  CHECK(job.device->usage(Pool::host).now == planned_bytes(job.rank, Pool::host));
  return outcome;
}

// This rank's part of `whole`, the weights of one rank that has everything.
std::map<std::string, std::vector<float>> part_of(
    const std::map<std::string, std::vector<float>>& whole, const Case& c) {
  const plan::Plan plan = plan_of(c, c.layout);
  const plan::RankPlan rank = plan::rank_plan(plan, world().rank());
  std::map<std::string, std::vector<float>> part;
  for (const plan::Parameter& p : plan.stages[static_cast<std::size_t>(rank.stage)].parameters) {
    const std::vector<float>& all = whole.at(p.duplicate ? p.init_name : p.name);
    const std::int64_t first = plan::first_element(p, rank);
    part[p.name].assign(all.begin() + first, all.begin() + first + p.size);
  }
  return part;
}

void check_same(const std::map<std::string, std::vector<float>>& a,
                const std::map<std::string, std::vector<float>>& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : a) {
    INFO(name);
    CHECK(same_bits(values, b.at(name)));
  }
}

void check_against_one_rank(Case c) {
  const Outcome alone = run(c, true);
  const auto expected = part_of(alone.weights, c);
  struct Variant {
    double fraction;
    bool overlap, sharded;
    int delay_us;
  };
  Outcome first;
  for (const Variant& v :
       {Variant{0, false, true, 0}, Variant{0, false, false, 0}, Variant{0.5, false, true, 0},
        Variant{0.5, true, true, 0}, Variant{1, true, true, 300}, Variant{0.7, true, false, 300}}) {
    c.fraction = v.fraction;
    c.overlap = v.overlap;
    c.sharded = v.sharded;
    c.delay_us = v.delay_us;
    INFO("fraction " << v.fraction << " overlap " << v.overlap << " sharded " << v.sharded
                     << " delay " << v.delay_us << " " << name_of(c.compute));
    const Outcome mine = run(c);
    check_same(mine.weights, expected);
    for (std::size_t i = 0; i < mine.norms.size(); ++i) {
      // The order of a sum of doubles.
      CHECK(mine.norms[i] == Approx(alone.norms[i]).epsilon(1e-12));
      CHECK(mine.weight_norms[i] == Approx(alone.weight_norms[i]).epsilon(1e-12));
    }
    CHECK(mine.zeros == alone.zeros);
    if (first.norms.empty()) first = mine;
    CHECK(mine.norms == first.norms);
    CHECK(mine.weight_norms == first.weight_norms);
  }
}

}  // namespace

TEST_CASE("DP 2 gives the bits of one rank", "[np2]") {
  check_against_one_rank({.layout = {.data = 2}});
  check_against_one_rank({.layout = {.data = 2}, .tied = true, .compute = DType::bf16});
}

TEST_CASE("EP 2 gives the bits of one rank", "[np2]") {
  check_against_one_rank({.layout = {.expert = 2, .data = 2}});
}

TEST_CASE("PP 2 with a tied embedding gives the bits of one rank: both copies sum their gradients",
          "[np2]") {
  check_against_one_rank({.layout = {.pipeline = 2}, .tied = true});
  check_against_one_rank({.layout = {.pipeline = 2}, .compute = DType::bf16});
}

TEST_CASE("EP 2 x DP 4 gives the bits of one rank: expert gradients are summed over their replicas",
          "[np4]") {
  check_against_one_rank({.layout = {.expert = 2, .data = 4}});
}

TEST_CASE("B065: PP 2 x DP 2, tied, gives the bits of one rank", "[np4]") {
  check_against_one_rank({.layout = {.pipeline = 2, .data = 2}, .tied = true});
}

TEST_CASE("B055: PP 2 x EP 2 x DP 2 counts each parameter once in the norm", "[np4]") {
  check_against_one_rank(
      {.layout = {.pipeline = 2, .expert = 2, .data = 2}, .compute = DType::bf16});
}

TEST_CASE("PP 2 x EP 2 x DP 4 gives the bits of one rank", "[np8]") {
  check_against_one_rank({.layout = {.pipeline = 2, .expert = 2, .data = 4}, .tied = true});
}

TEST_CASE("B088: a binding clip takes gradients of both halves, the same bits at every fraction",
          "[np2]") {
  Case c{.layout = {.expert = 2, .data = 2}, .clip = 0.01};
  const Outcome base = run(c);
  CHECK(base.norms[0] > 0.1);
  const auto alone = part_of(run(c, true).weights, c);
  for (const auto& [name, values] : base.weights) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      // The coefficient's last bit may differ between layouts; four steps of at most 4e-3.
      REQUIRE(std::fabs(values[i] - alone.at(name)[i]) <= 1e-6);
    }
  }
  for (const double fraction : {0.5, 1.0}) {
    for (const bool overlap : {false, true}) {
      c.fraction = fraction;
      c.overlap = overlap;
      const Outcome mine = run(c);
      CHECK(mine.norms == base.norms);
      check_same(mine.weights, base.weights);
    }
  }
  c.clip = 0;
  CHECK(run(c).weights != base.weights);
}

TEST_CASE("all ranks refuse a NaN of one of them and know whose it is", "[np4]") {
  const Layout layouts[] = {{.data = 4},
                            {.expert = 2, .data = 4},
                            {.expert = 4, .data = 4},  // experts without replicas
                            {.pipeline = 2, .data = 2}};
  for (const Layout& layout : layouts) {
    for (const bool sharded : {true, false}) {
      Case c{.layout = layout, .fraction = 0.5, .overlap = true, .sharded = sharded};
      Job job(plan_of(c, layout), world());
      job.optimizer->initialize();
      iterate(job, 1, input_of(1));
      job.optimizer->finish();
      const auto before = job.weights();
      for (int culprit = 0; culprit < world().size(); ++culprit) {
        job.optimizer->begin();
        fill_gradients(job, 2);
        if (world().rank() == culprit) {
          for (const plan::Parameter& p : job.stage().parameters) {
            if (layout.expert == 4 && !p.expert) continue;
            job.gradient(p)[p.size / 2] = std::numeric_limits<float>::quiet_NaN();
          }
        }
        report_ready(job);
        const StepResult result = job.optimizer->step(input_of(2));
        INFO("culprit " << culprit << " sharded " << sharded);
        CHECK_FALSE(result.finite);
        CHECK(result.failed_rank == culprit);
        check_same(job.weights(), before);
      }
      CHECK(iterate(job, 2, input_of(2)).finite);
      job.optimizer->finish();
    }
  }
}

}  // namespace rr::optim
