// The step on one rank: initial values, norm, clip, decay groups, learning rate, NaN, idle experts.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "optim/golden.h"
#include "optim/job.h"

namespace rr::optim {
namespace {

using namespace testing;

struct One {
  std::unique_ptr<comm::World> world = comm::make_self_world();
  Job job;
  explicit One(plan::Plan plan) : job(std::move(plan), *world) { job.optimizer->initialize(); }
  const plan::Parameter& parameter(const std::string& name) const {
    for (const plan::Parameter& p : job.stage().parameters) {
      if (p.name == name) return p;
    }
    throw Error("no parameter " + name);
  }
  StepResult step(std::int64_t t, const StepInput& input) {
    const StepResult result = iterate(job, t, input);
    job.optimizer->finish();
    return result;
  }
};

plan::Plan half(DType compute = DType::f32, double clip = 0) {
  plan::Plan plan = make_small_plan({}, false, compute);
  set_fraction(plan, 0.5);
  plan.optimizer.clip = clip;
  return plan;
}

std::vector<std::byte> all_state(const Job& job) {
  std::vector<std::byte> bytes;
  for (const StatePiece& piece : job.optimizer->state()) {
    bytes.insert(bytes.end(), piece.data.data, piece.data.data + piece.data.bytes);
  }
  return bytes;
}

// Plain AdamW in double on one element.
struct Reference {
  double p, m = 0, v = 0;
  void step(double g, std::int64_t t, double lr, double decay, const plan::OptimizerPlan& plan) {
    m = plan.beta1 * m + (1 - plan.beta1) * g;
    v = plan.beta2 * v + (1 - plan.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(plan.beta1, t));
    const double v_hat = v / (1 - std::pow(plan.beta2, t));
    p = p * (1 - lr * decay) - lr * m_hat / (std::sqrt(v_hat) + plan.epsilon);
  }
};

}  // namespace

TEST_CASE("initial values are the named stream's, ones for norms, rounded into the weights") {
  for (const DType compute : {DType::f32, DType::bf16}) {
    One one(half(compute));
    for (const plan::Parameter& p : one.job.stage().parameters) {
      std::vector<float> expected(static_cast<std::size_t>(p.size), 1.0F);
      if (p.init == plan::Init::normal) {
        RandomStream(one.job.plan.model.seed, p.init_name)
            .normal(0, p.size, static_cast<float>(p.std), expected.data());
      }
      if (compute == DType::bf16) {
        for (float& x : expected) x = float_from_bf16(bf16_from_float(x));
      }
      INFO(p.name);
      CHECK(same_bits(one.job.weight(p), expected));
    }
  }
}

TEST_CASE("imported masters keep their fp32 bits, weights are rounded to nearest even") {
  One one(half(DType::bf16));
  const auto value = [](std::int64_t i) {
    return std::bit_cast<float>(0x3f808000U + static_cast<std::uint32_t>(i) * 0x7fffU);
  };
  one.job.optimizer->import(
      [&](const plan::Parameter&, std::int64_t first, std::int64_t count, float* out) {
        for (std::int64_t i = 0; i < count; ++i) out[i] = value(first + i);
      });
  for (const plan::Parameter& p : one.job.stage().parameters) {
    const std::vector<float> weight = one.job.weight(p);
    for (std::int64_t i = 0; i < p.size; ++i) {
      REQUIRE(weight[static_cast<std::size_t>(i)] == float_from_bf16(bf16_from_float(value(i))));
    }
  }
  for (const StatePiece& piece : one.job.optimizer->state()) {
    if (!piece.name.ends_with(".master")) continue;
    for (std::int64_t i = 0; i < piece.data.bytes / 4; ++i) {
      REQUIRE(same_bits(piece.data.as<float>()[i], value(piece.first + i)));
    }
  }
}

TEST_CASE("state pieces cover every element once, also of what a range cuts in two") {
  One one(half());
  std::map<std::string, std::vector<int>> seen;
  for (const StatePiece& piece : one.job.optimizer->state()) {
    std::vector<int>& counts = seen[piece.name];
    const auto end = static_cast<std::size_t>(piece.first + piece.data.bytes / 4);
    if (counts.size() < end) counts.resize(end);
    for (auto i = static_cast<std::size_t>(piece.first); i < end; ++i) ++counts[i];
  }
  CHECK(seen.size() == 3 * one.job.stage().parameters.size());
  for (const plan::Parameter& p : one.job.stage().parameters) {
    CHECK(seen.at(p.name + ".exp_avg") == std::vector<int>(static_cast<std::size_t>(p.size), 1));
  }
}

TEST_CASE("the gradient norm is that of all parameters, zeros and weights are counted, not pads") {
  plan::Plan plan = half();
  plan.log.num_zeros = plan.log.params_norm = true;
  One one(plan);
  fill_gradients(one.job, 1);
  double squares = 0, weights = 0, elements = 0;
  for (const plan::Parameter& p : one.job.stage().parameters) {
    one.job.gradient(p)[0] = 0.0F;
    for (std::int64_t i = 0; i < p.size; ++i) squares += std::pow(one.job.gradient(p)[i], 2);
    elements += static_cast<double>(p.size);
  }
  const StepResult result = one.job.optimizer->step({0.0, 0.0, 1});
  one.job.optimizer->finish();
  for (const plan::Parameter& p : one.job.stage().parameters) {
    for (const float w : one.job.weight(p)) weights += static_cast<double>(w) * w;
  }
  CHECK(result.grad_norm == Approx(std::sqrt(squares)).epsilon(1e-12));
  CHECK(result.params_norm == Approx(std::sqrt(weights)).epsilon(1e-12));
  CHECK(result.num_zeros >= static_cast<double>(one.job.stage().parameters.size()));
  CHECK(result.num_zeros < elements / 100);
}

TEST_CASE("weight decay reaches matrices only, learning rate and decay both halves") {
  // Without gradients only decay moves: p * (1 - lr * wd). B084, B085.
  One one(half());
  for (const plan::Parameter& p : one.job.stage().parameters) {
    std::fill_n(one.job.gradient(p), p.size, 0.0F);
  }
  const auto before = one.job.weights();
  one.job.optimizer->step({0.5, 0.25, 1});
  one.job.optimizer->finish();
  int matrices = 0, vectors = 0;
  for (const plan::Parameter& p : one.job.stage().parameters) {
    ++(p.decay ? matrices : vectors);
    std::vector<float> expected = before.at(p.name);
    for (float& x : expected) x *= p.decay ? 0.875F : 1.0F;
    INFO(p.name);
    CHECK(same_bits(one.job.weight(p), expected));
  }
  CHECK(matrices > 0);
  CHECK(vectors > 0);
}

TEST_CASE("B085: the learning rate of each step reaches the device and the host half") {
  // Adam's first step moves every element with a clear gradient by the learning rate.
  for (const double rate : {1e-3, 4e-3}) {
    One one(half());
    const auto before = one.job.weights();
    fill_gradients(one.job, 1);
    one.job.optimizer->step({rate, 0.0, 1});
    one.job.optimizer->finish();
    for (const plan::ShardRange& range : one.job.rank.shard) {
      for (const plan::Parameter& p : one.job.stage().parameters) {
        if (p.buffer != range.buffer || p.offset < range.begin || p.offset >= range.end) continue;
        const double moved = std::fabs(one.job.weight(p)[0] - before.at(p.name)[0]);
        INFO(p.name << " on " << plan::name_of(range.home));
        // Weights of order 1 have steps of 6e-8 / 1e-3 = 6e-5 of the move; epsilon is 1e-3 of the
        // smallest gradient.
        if (std::fabs(one.job.gradient(p)[0]) > 1e-5F) CHECK(moved == Approx(rate).epsilon(2e-3));
      }
    }
  }
}

TEST_CASE("learning rate 0 leaves every weight and moves the moments") {
  One one(half(DType::bf16));
  const auto before = one.job.weights();
  const std::vector<std::byte> state = all_state(one.job);
  one.step(1, {0.0, 0.1, 1});
  CHECK(one.job.weights() == before);
  CHECK(all_state(one.job) != state);
}

TEST_CASE(
    "B073: clip 0 is off and reports the norm, the clip coefficient is clip / (norm + 1e-6)") {
  One off(half(DType::f32, 0)), huge(half(DType::f32, 1e9)), tight(half(DType::f32, 0.01));
  One by_hand(half(DType::f32, 0));
  const double norm = off.step(1, input_of(1)).grad_norm;
  CHECK(norm > 0.1);
  CHECK(huge.step(1, input_of(1)).grad_norm == norm);
  CHECK(off.job.weights() == huge.job.weights());
  CHECK(tight.step(1, input_of(1)).grad_norm == norm);  // before clipping

  const auto coefficient = static_cast<float>(0.01 / (norm + 1e-6));
  by_hand.job.optimizer->begin();
  fill_gradients(by_hand.job, 1);
  for (const plan::Parameter& p : by_hand.job.stage().parameters) {
    for (std::int64_t i = 0; i < p.size; ++i) by_hand.job.gradient(p)[i] *= coefficient;
  }
  report_ready(by_hand.job);
  by_hand.job.optimizer->step(input_of(1));
  by_hand.job.optimizer->finish();
  CHECK(all_state(tight.job) == all_state(by_hand.job));
  CHECK(all_state(tight.job) != all_state(off.job));
}

TEST_CASE(
    "a NaN or infinite gradient is refused: nothing changes, the next step is as if it never was") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const bool overlap : {false, true}) {
      plan::Plan plan = half(DType::bf16, 1.0);
      plan.optimizer.overlap = overlap;
      One clean(plan), hit(plan);
      clean.step(1, input_of(1));
      hit.step(1, input_of(1));
      const std::vector<std::byte> state = all_state(hit.job);
      const auto weights = hit.job.weights();
      for (const plan::Parameter& p :
           {hit.job.stage().parameters.front(), hit.job.stage().parameters.back()}) {
        hit.job.optimizer->begin();
        fill_gradients(hit.job, 2);
        hit.job.gradient(p)[p.size - 1] = bad;
        report_ready(hit.job);
        const StepResult result = hit.job.optimizer->step(input_of(2));
        spoil_gradients(hit.job);
        CHECK_FALSE(result.finite);
        CHECK(result.failed_rank == 0);
        CHECK(all_state(hit.job) == state);
        CHECK(hit.job.weights() == weights);
      }
      const StepResult a = clean.step(2, input_of(2)), b = hit.step(2, input_of(2));
      CHECK(b.finite);
      CHECK(a.grad_norm == b.grad_norm);
      CHECK(all_state(clean.job) == all_state(hit.job));
    }
  }
}

TEST_CASE("gradients near the largest float are finite: the norm does not overflow") {
  One one(half(DType::f32, 1.0));
  one.job.optimizer->begin();
  for (const plan::Parameter& p : one.job.stage().parameters) {
    std::fill_n(one.job.gradient(p), p.size, 3e38F);
  }
  const StepResult result = one.job.optimizer->step(input_of(1));
  CHECK(result.finite);
  CHECK(result.grad_norm > 1e40);
}

TEST_CASE("B147: an expert with tokens on odd steps only counts every step, on both halves") {
  for (const double fraction : {0.0, 1.0}) {
    plan::Plan plan = half();
    set_fraction(plan, fraction);
    One one(plan);
    const plan::Parameter& p = one.parameter("decoder.layers.0.mlp.experts.linear_fc2.weight");
    const std::int64_t expert = p.size / p.shape[0];  // elements of one expert; look at the second
    const auto at = static_cast<std::size_t>(expert + 5);
    Reference reference{.p = one.job.weight(p)[at]};
    for (std::int64_t t = 1; t <= 8; ++t) {
      one.job.optimizer->begin();
      fill_gradients(one.job, t);
      if (t % 2 == 0) std::fill_n(one.job.gradient(p) + expert, expert, 0.0F);
      const double g = one.job.gradient(p)[at];
      report_ready(one.job);
      one.job.optimizer->step(input_of(t));
      one.job.optimizer->finish();
      const StepInput input = input_of(t);
      reference.step(g, t, input.learning_rate, input.weight_decay, one.job.plan.optimizer);
      INFO("step " << t << " fraction " << fraction);
      // fp32 against double: a few roundings of a weight of order 0.02 per step.
      CHECK(one.job.weight(p)[at] == Approx(reference.p).epsilon(1e-5));
    }
  }
}

TEST_CASE("layers that never reported are reduced by step, reports in any order change nothing") {
  One in_order(half()), silent(half()), shuffled(half());
  in_order.step(1, input_of(1));
  for (One* one : {&silent, &shuffled}) {
    one->job.optimizer->begin();
    fill_gradients(one->job, 1);
    if (one == &shuffled) {
      for (const int layer : {2, 5, 0, 2, 1}) one->job.optimizer->gradients_ready(layer);
    }
    one->job.optimizer->step(input_of(1));
    one->job.optimizer->finish();
    CHECK(all_state(one->job) == all_state(in_order.job));
  }
}

TEST_CASE("the host's times are reported, and none without host ranges") {
  for (const bool overlap : {false, true}) {
    plan::Plan plan = half();
    plan.optimizer.overlap = overlap;
    One one(plan);
    const StepResult first = one.step(1, input_of(1));
    CHECK(first.adam_ms > 0);
    CHECK(first.d2h_ms > 0);
    CHECK(one.step(2, input_of(2)).h2d_ms > 0);  // the first step's copies have passed
  }
  One none(make_small_plan());
  const StepResult result = none.step(1, input_of(1));
  CHECK(result.adam_ms + result.d2h_ms + result.h2d_ms == 0);
}

}  // namespace rr::optim
