// Learning rate and weight decay against megatron-core's own scheduler.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "plan/planner.h"

using namespace rr::plan;
using nlohmann::json;

namespace {

Decay decay_of(const std::string& name) {
  if (name == "constant") return Decay::constant;
  if (name == "linear") return Decay::linear;
  if (name == "cosine") return Decay::cosine;
  if (name == "inverse-square-root") return Decay::inverse_square_root;
  REQUIRE(name == "WSD");
  return Decay::wsd;
}

WsdDecay wsd_of(const std::string& name) {
  if (name == "linear") return WsdDecay::linear;
  if (name == "cosine") return WsdDecay::cosine;
  if (name == "exponential") return WsdDecay::exponential;
  REQUIRE(name == "minus_sqrt");
  return WsdDecay::minus_sqrt;
}

SchedulePlan schedule_of(const json& arguments, const json& group) {
  SchedulePlan s;
  s.max_lr = group.value("max_lr", arguments.at("max_lr").get<double>());
  s.min_lr = group.value("min_lr", arguments.at("min_lr").get<double>());
  s.warmup_init = arguments.at("init_lr");
  s.warmup = arguments.at("lr_warmup_steps");
  s.decay = arguments.at("lr_decay_steps");
  s.style = decay_of(arguments.at("lr_decay_style"));
  if (s.style == Decay::wsd) {
    s.wsd_style = wsd_of(arguments.at("lr_wsd_decay_style"));
    s.wsd_decay = arguments.at("wsd_decay_steps");
  }
  s.start_weight_decay = group.value("start_wd", arguments.at("start_wd").get<double>());
  s.end_weight_decay = group.value("end_wd", arguments.at("end_wd").get<double>());
  s.weight_decay_steps = arguments.at("wd_incr_steps");
  const std::string ramp = arguments.at("wd_incr_style");
  s.weight_decay_ramp = ramp == "constant" ? SchedulePlan::Ramp::constant
                        : ramp == "linear" ? SchedulePlan::Ramp::linear
                                           : SchedulePlan::Ramp::cosine;
  return s;
}

}  // namespace

TEST_CASE("every schedule equals megatron-core's to 1e-14 of the largest rate") {
  std::ifstream file(RR_TEST_DATA "/plan/lr_schedules.json");
  const json oracle = json::parse(file);
  int compared = 0;
  for (const json& test : oracle.at("cases")) {
    if (test.contains("error")) continue;  // refused by the recipe's rules
    const std::int64_t increment = test.at("increment");
    for (std::size_t g = 0; g < test.at("groups").size(); ++g) {
      const json& group = test.at("groups")[g];
      const SchedulePlan schedule = schedule_of(test.at("arguments"), group);
      const double factor = group.value("wd_mult", 1.0);
      const json& values = test.at("lr_wd")[g];
      for (std::size_t i = 0; i < values.size(); ++i) {
        INFO(test.at("name") << " group " << g << " step " << i);
        const std::int64_t samples = static_cast<std::int64_t>(i) * increment;
        CHECK(std::abs(learning_rate(schedule, samples) - values[i][0].get<double>()) <=
              1e-14 * schedule.max_lr);
        CHECK(std::abs(factor * weight_decay(schedule, samples) - values[i][1].get<double>()) <=
              1e-14);
        ++compared;
      }
    }
  }
  CHECK(compared > 2000);
}

TEST_CASE("B041: every legal warm-up and decay gives a finite rate between min and max") {
  for (const std::int64_t warmup : {0, 1, 5}) {
    for (const std::int64_t decay : {1, 5, 6}) {
      for (const Decay style : {Decay::constant, Decay::linear, Decay::cosine,
                                Decay::inverse_square_root, Decay::wsd}) {
        SchedulePlan s;
        s.max_lr = 1e-3;
        s.min_lr = 1e-5;
        s.warmup_init = s.min_lr;
        s.style = style;
        s.warmup = warmup;
        s.decay = decay;
        s.wsd_decay = 1;
        for (std::int64_t n = 0; n <= 8; ++n) {
          INFO("warmup " << warmup << " decay " << decay << " samples " << n);
          const double rate = learning_rate(s, n);
          CHECK(std::isfinite(rate));
          CHECK(rate >= s.min_lr * (1 - 1e-12));
          CHECK(rate <= s.max_lr * (1 + 1e-12));
          if (style == Decay::linear && n > warmup && warmup < decay) {
            const double left = std::max<double>(0.0, static_cast<double>(decay - n));
            CHECK(rate == Approx(s.min_lr + (s.max_lr - s.min_lr) * left /
                                                static_cast<double>(decay - warmup)));
          }
        }
      }
    }
  }
}

TEST_CASE("B042: with warm-up 4 iteration i runs at (i - 1) / 4 of the rate") {
  SchedulePlan s;
  s.max_lr = 1e-3;
  s.style = Decay::constant;
  s.warmup = 4 * 8;
  s.decay = 100 * 8;
  for (std::int64_t iteration = 1; iteration <= 5; ++iteration) {
    CHECK(learning_rate(s, (iteration - 1) * 8) ==
          Approx(1e-3 * static_cast<double>(iteration - 1) / 4).margin(1e-18));
  }
}

TEST_CASE("B045, B047: rate and weight decay depend on the samples alone, not on the way there") {
  SchedulePlan schedule;
  schedule.max_lr = 1e-3;
  schedule.min_lr = 1e-5;
  schedule.style = Decay::cosine;
  schedule.warmup = 32;
  schedule.decay = 160;
  schedule.start_weight_decay = 0;
  schedule.end_weight_decay = 0.1;
  schedule.weight_decay_ramp = SchedulePlan::Ramp::linear;
  schedule.weight_decay_steps = 160;
  std::vector<double> forth, back;
  for (int i = 0; i <= 20; ++i) {
    forth.push_back(learning_rate(schedule, 8 * i));
    forth.push_back(weight_decay(schedule, 8 * i));
  }
  for (int i = 20; i >= 0; --i) {
    back.push_back(weight_decay(schedule, 8 * i));
    back.push_back(learning_rate(schedule, 8 * i));
  }
  std::reverse(back.begin(), back.end());
  CHECK(forth == back);
  CHECK(weight_decay(schedule, 80) == Approx(0.05));  // at iteration 11, stopped before it or not
}
