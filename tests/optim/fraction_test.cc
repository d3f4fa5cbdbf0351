// Where the state lives changes bytes and nothing else: fractions, masters, overlap, threads,
// delays.
#include <catch2/catch.hpp>
#include <set>

#include "optim/golden.h"
#include "optim/job.h"

namespace rr::optim {
namespace {

using namespace testing;

struct Case {
  DType compute = DType::f32;
  double fraction = 0;
  bool offload_masters = true;
  bool overlap = false;
  int threads = 1;
  int delay_us = 0;
  std::int64_t chunk = 1000;
  double clip = 1.0;
  plan::OptimizerPlan::Placement placement = plan::OptimizerPlan::Placement::latest_first;
};

plan::Plan plan_of(const Case& c) {
  plan::Plan plan = make_small_plan({}, false, c.compute);
  if (c.fraction > 0) set_fraction(plan, c.fraction);
  plan.optimizer.offload_masters = c.offload_masters;
  plan.optimizer.overlap = c.overlap;
  plan.optimizer.clip = c.clip;
  plan.optimizer.placement = c.placement;
  plan.log.params_norm = plan.log.num_zeros = true;
  return plan;
}

std::unique_ptr<device::Device> device_of(const Case& c) {
  auto device = device::make_cpu_device();
  if (c.delay_us == 0) return device;
  return device::make_faulty_device(std::move(device), {.seed = 3, .max_delay_us = c.delay_us});
}

struct Outcome {
  std::vector<double> series;  // norms of gradients and weights, zeros
  std::map<std::string, std::vector<float>> weights;
  std::map<std::string, std::vector<float>> state;  // whole tensors, put together from pieces
};

std::map<std::string, std::vector<float>> whole_state(const Job& job) {
  std::map<std::string, std::vector<float>> whole;
  for (const plan::Parameter& p : job.stage().parameters) {
    for (const char* ending : {".master", ".exp_avg", ".exp_avg_sq"}) {
      whole[p.name + ending].assign(static_cast<std::size_t>(p.size), -1e30F);
    }
  }
  for (const StatePiece& piece : job.optimizer->state()) {
    std::vector<float>& all = whole.at(piece.name);
    REQUIRE(piece.dtype == DType::f32);
    REQUIRE(piece.first * 4 + piece.data.bytes <= static_cast<std::int64_t>(all.size() * 4));
    std::memcpy(all.data() + piece.first, piece.data.data,
                static_cast<std::size_t>(piece.data.bytes));
  }
  return whole;
}

Outcome run(const Case& c, int steps = 10) {
  const auto world = comm::make_self_world();
  Job job(plan_of(c), *world, device_of(c), c.threads, c.chunk);
  job.optimizer->initialize();
  Outcome outcome;
  for (int t = 1; t <= steps; ++t) {
    const StepResult result = iterate(job, t, input_of(t));
    REQUIRE(result.finite);
    outcome.series.insert(outcome.series.end(),
                          {result.grad_norm, result.params_norm, result.num_zeros});
    if (t % 2 == 0) job.optimizer->finish();
  }
  job.optimizer->finish();
  outcome.weights = job.weights();
  outcome.state = whole_state(job);
  return outcome;
}

void check_same(const Outcome& a, const Outcome& b) {
  CHECK(a.series == b.series);
  REQUIRE(a.weights.size() == b.weights.size());
  for (const auto& [name, values] : a.weights) {
    INFO(name);
    CHECK(same_bits(values, b.weights.at(name)));
  }
  for (const auto& [name, values] : a.state) {
    INFO(name);
    CHECK(same_bits(values, b.state.at(name)));
  }
}

}  // namespace

TEST_CASE("B083: every fraction gives the same bits over ten steps, tiny and nearly whole too") {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const Outcome base = run({.compute = compute});
    CHECK(base.series[0] > 1.0);  // the clip of 1 binds
    for (const double fraction : {0.001, 0.25, 0.5, 0.999, 1.0}) {
      INFO(name_of(compute) << " fraction " << fraction);
      check_same(base, run({.compute = compute, .fraction = fraction}));
    }
  }
}

TEST_CASE("B146: overlap, threads, chunks, delays and placement change no bit") {
  using Placement = plan::OptimizerPlan::Placement;
  for (const DType compute : {DType::f32, DType::bf16}) {
    const Outcome base = run({.compute = compute});
    const Case cases[] = {
        {.fraction = 0.5, .overlap = true},
        {.fraction = 0.5, .offload_masters = false},
        {.fraction = 0.5, .offload_masters = false, .overlap = true, .threads = 3},
        {.fraction = 1, .threads = 3, .chunk = 64},
        {.fraction = 1, .overlap = true, .threads = 3, .chunk = 1 << 20},
        {.threads = 3},
        {.fraction = 0.5, .overlap = true, .delay_us = 300, .chunk = 5000},
        {.fraction = 0.5,
         .offload_masters = false,
         .overlap = true,
         .delay_us = 300,
         .chunk = 5000},
        {.fraction = 0.5, .delay_us = 100, .chunk = 5000},
        {.fraction = 0.5, .placement = Placement::megatron},
    };
    for (Case c : cases) {
      c.compute = compute;
      INFO(name_of(compute) << " case " << (&c - cases) << " overlap " << c.overlap << " threads "
                            << c.threads << " chunk " << c.chunk << " delay " << c.delay_us);
      check_same(base, run(c));
    }
  }
}

TEST_CASE("B081: the device pool falls by exactly the planned bytes, 64 elements a step") {
  const auto world = comm::make_self_world();
  struct Expect {
    DType compute;
    bool offload_masters;
    std::int64_t device_bytes, host_bytes;  // per moved element
  };
  for (const Expect& e :
       {Expect{DType::bf16, true, 12, 12 + 4 + 2},  // B048: + gradient + weight
        Expect{DType::bf16, false, 8, 12 + 4 + 2}, Expect{DType::f32, true, 8, 16}}) {
    std::int64_t whole = 0, total = 0, last_host = -1;
    for (int tenth = 0; tenth <= 10; ++tenth) {
      const double fraction = tenth / 10.0;
      Job job(
          plan_of(
              {.compute = e.compute, .fraction = fraction, .offload_masters = e.offload_masters}),
          *world);
      const std::int64_t on_device = job.device->usage(Pool::device).now;
      const std::int64_t on_host = job.device->usage(Pool::host).now;
      CHECK(on_device == planned_bytes(job.rank, Pool::device));
      CHECK(on_host == planned_bytes(job.rank, Pool::host));
      total = job.rank.shard_elements;
      if (tenth == 0) whole = on_device;
      const std::int64_t moved =
          tenth == 10 ? total
                      : static_cast<std::int64_t>(fraction * static_cast<double>(total) / 64) * 64;
      INFO(name_of(e.compute) << " fraction " << fraction);
      CHECK(job.rank.offloaded_elements == moved);
      CHECK(whole - on_device == e.device_bytes * moved);
      CHECK(on_host == e.host_bytes * moved);
      CHECK(on_host > last_host);
      last_host = on_host;
      job.optimizer->initialize();
      iterate(job, 1, input_of(1));
      job.optimizer->finish();
      CHECK(job.device->usage(Pool::device).peak == on_device);  // no hidden staging
      CHECK(job.device->usage(Pool::host).peak == on_host);
    }
  }
}

TEST_CASE("a step moves each gradient out and each weight in once, masters only if they stay") {
  const auto world = comm::make_self_world();
  for (const bool overlap : {false, true}) {
    for (const bool offload_masters : {true, false}) {
      Job job(plan_of({.compute = DType::bf16,
                       .fraction = 0.5,
                       .offload_masters = offload_masters,
                       .overlap = overlap}),
              *world);
      job.optimizer->initialize();
      const device::CopyTotals before = job.device->copies();
      iterate(job, 1, input_of(1));
      job.optimizer->finish();
      const device::CopyTotals after = job.device->copies();
      CHECK(after.d2h_bytes - before.d2h_bytes == 4 * job.rank.offloaded_elements);
      CHECK(after.h2d_bytes - before.h2d_bytes ==
            (offload_masters ? 2 : 6) * job.rank.offloaded_elements);
    }
  }
}

TEST_CASE("nothing is left in the pools when an optimizer is gone or could not be made") {
  const auto world = comm::make_self_world();
  const plan::Plan plan = plan_of({.compute = DType::bf16, .fraction = 0.5});
  const plan::RankPlan rank = plan::rank_plan(plan, 0);
  const comm::Groups groups = comm::make_groups(*world, plan.topology);
  ThreadPool threads(1);
  for (const int failing : {-1, 0, 3, 6}) {
    auto device =
        device::make_faulty_device(device::make_cpu_device(), {.fail_allocation = failing});
    if (failing < 0) {
      make_optimizer({plan, rank, *device, groups, threads});
    } else {
      CHECK_THROWS_AS(make_optimizer({plan, rank, *device, groups, threads}), Error);
    }
    CHECK(device->usage(Pool::device).now == 0);
    CHECK(device->usage(Pool::host).now == 0);
  }
}

TEST_CASE("a failed copy is told by step or finish, and by nothing later") {
  const auto world = comm::make_self_world();
  for (const bool overlap : {false, true}) {
    const Case c{.fraction = 0.5, .overlap = overlap};
    // Copies of initialize() come first; two later ones hit a gradient and a weight.
    Job probe(plan_of(c), *world);
    std::int64_t initial = 0;
    probe.optimizer->initialize();
    for (const StatePiece& piece : probe.optimizer->state()) {
      if (piece.name.ends_with(".master")) initial += piece.data.pool == Pool::host ? 2 : 1;
    }
    for (const std::int64_t failing : {initial, initial + 1}) {
      Job job(plan_of(c), *world,
              device::make_faulty_device(device::make_cpu_device(), {.fail_copy = failing}));
      job.optimizer->initialize();
      CHECK_THROWS_WITH(
          [&] {
            iterate(job, 1, input_of(1));
            job.optimizer->finish();
          }(),
          Catch::Contains("injected failure"));
    }
  }
}

TEST_CASE("wait_for(layer) returns only when that layer's weights have arrived") {
  const auto world = comm::make_self_world();
  const Outcome base = run({.compute = DType::bf16}, 1);
  const Case c{
      .compute = DType::bf16, .fraction = 1, .overlap = true, .delay_us = 2000, .chunk = 1 << 20};
  Job job(plan_of(c), *world, device_of(c));
  job.optimizer->initialize();
  iterate(job, 1, input_of(1));
  for (int layer = 0; layer <= job.plan.model.num_layers + 1; ++layer) {
    job.optimizer->wait_for(layer);
    for (const plan::Parameter& p : job.stage().parameters) {
      INFO(p.name);
      if (p.layer == layer) CHECK(same_bits(job.weight(p), base.weights.at(p.name)));
    }
  }
}

}  // namespace rr::optim
