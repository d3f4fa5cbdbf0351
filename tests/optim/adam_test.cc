// The AdamW kernels: against torch's values, against each other, in pieces.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "optim/golden.h"
#include "optim/optim.h"

namespace rr::optim {
namespace {

const Isa kIsas[] = {Isa::best, Isa::generic, Isa::avx2, Isa::avx512};

struct Arrays {
  std::vector<float> p, m, v;
  bool operator==(const Arrays& other) const {
    return same_bits(p, other.p) && same_bits(m, other.m) && same_bits(v, other.v);
  }
};

plan::OptimizerPlan settings() {
  plan::OptimizerPlan plan;
  plan.beta1 = 0.9;
  plan.beta2 = 0.95;
  return plan;
}

// Magnitudes from denormal to 1e15, both signs, zeros.
Arrays some_state(std::int64_t n, std::uint64_t seed) {
  Arrays arrays{some_values(n, seed), some_values(n, seed + 1), some_values(n, seed + 2)};
  for (float& v : arrays.v) v = std::fabs(v);
  return arrays;
}

void step(const AdamArguments& arguments, Arrays& arrays, const std::vector<float>& g, Isa isa) {
  adam_step(arguments, static_cast<std::int64_t>(g.size()), arrays.p.data(), arrays.m.data(),
            arrays.v.data(), g.data(), arrays.p.data(), DType::f32, isa);
}

}  // namespace

TEST_CASE("ten steps equal torch's AdamW: moments to the bit, parameters but for last bits") {
  const checkpoint::SafetensorsReader golden(std::string(RR_TEST_DATA) +
                                             "/optim/adamw_plain.safetensors");
  const auto about =
      nlohmann::json::parse(std::ifstream(std::string(RR_TEST_DATA) + "/optim/adamw.json"));
  const std::int64_t n = about["n"];
  plan::OptimizerPlan plan = settings();
  plan.epsilon = about["eps"];
  const std::vector<float> gradients = floats(golden.at("grad"));
  const std::vector<float> p = floats(golden.at("plain.p")), m = floats(golden.at("plain.m")),
                           v = floats(golden.at("plain.v"));
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    Arrays mine{floats(golden.at("p0")), std::vector<float>(n), std::vector<float>(n)};
    for (std::int64_t t = 0; t < 10; ++t) {
      const StepInput input{about["lr"][t], about["weight_decay"], t + 1};
      const auto row = [&](const std::vector<float>& all) {
        return std::vector<float>(all.begin() + t * n, all.begin() + (t + 1) * n);
      };
      step(adam_arguments(plan, input, 1.0, true), mine, row(gradients), isa);
      INFO("step " << t + 1 << " isa " << static_cast<int>(isa));
      CHECK(same_bits(mine.m, row(m)));
      CHECK(same_bits(mine.v, row(v)));
      const std::vector<float> expected = row(p);
      int different = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        if (mine.p[i] == expected[i]) continue;
        ++different;
        // Special elements (the first 22) carry huge values; the rest are of order 1.
        const double tolerance =
            i < 22 ? 1e-5 * std::fabs(expected[i]) : 1e-6 * std::fmax(1.0, std::fabs(expected[i]));
        CHECK(std::fabs(static_cast<double>(mine.p[i]) - expected[i]) <= tolerance);
      }
      CHECK(different <= 16);
    }
  }
}

TEST_CASE("B050: every instruction set gives the same bits for any length and misaligned start") {
  const plan::OptimizerPlan plan = settings();
  for (const std::int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 1023, 4099}) {
    for (const int start : {0, 1, 3}) {
      const Arrays before = some_state(n + start, 7 * n);
      const std::vector<float> g = some_values(n + start, 7 * n + 3);
      Arrays expected = before;
      std::vector<std::uint16_t> expected_weight(n + start, 0xabcd);
      const auto run = [&](Arrays& a, std::vector<std::uint16_t>& weight, Isa isa) {
        for (std::int64_t t = 1; t <= 3; ++t) {
          adam_step(adam_arguments(plan, {1e-2, 0.1, t}, 0.37, true), n, a.p.data() + start,
                    a.m.data() + start, a.v.data() + start, g.data() + start, weight.data() + start,
                    DType::bf16, isa);
        }
      };
      run(expected, expected_weight, Isa::generic);
      for (int i = 0; i < start; ++i) {
        CHECK(same_bits(expected.p[i], before.p[i]));
        CHECK(expected_weight[i] == 0xabcd);
      }
      for (std::int64_t i = start; i < n + start; ++i) {
        CHECK(expected_weight[i] == bf16_from_float(expected.p[i]));
      }
      for (const Isa isa : kIsas) {
        if (!isa_available(isa)) continue;
        Arrays mine = before;
        std::vector<std::uint16_t> weight(n + start, 0xabcd);
        run(mine, weight, isa);
        INFO("n " << n << " start " << start << " isa " << static_cast<int>(isa));
        CHECK(mine == expected);
        CHECK(weight == expected_weight);
      }
    }
  }
}

TEST_CASE("bf16 weights are rounded to nearest even, halves, infinities and NaN included") {
  // With learning rate 0 and no decay p stays what it is; 32 values fill every vector width.
  std::vector<std::uint32_t> bits = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff,
                                     0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001,
                                     0xffc00001, 0x00008000, 0x00018000, 0x80008001,
                                     0x00000001, 0x80000000, 0,          0x7fffffff};
  bits.insert(bits.end(), bits.begin(), bits.end());
  std::vector<float> zero(bits.size()), p(bits.size());
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    std::memcpy(p.data(), bits.data(), bits.size() * 4);
    std::vector<float> m = zero, v = zero;
    std::vector<std::uint16_t> weight(bits.size());
    adam_step(adam_arguments(settings(), {0.0, 0.0, 1}, 1.0, false), 32, p.data(), m.data(),
              v.data(), zero.data(), weight.data(), DType::bf16, isa);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      INFO(std::hex << bits[i] << " isa " << static_cast<int>(isa));
      CHECK(weight[i] == bf16_from_float(std::bit_cast<float>(bits[i])));
    }
  }
}

TEST_CASE("B050: two equal tensors with equal gradients stay equal, at different alignments") {
  const std::int64_t n = 1023;
  const Arrays start = some_state(n, 5);
  const std::vector<float> g = some_values(n, 9);
  Arrays a = start, b = start;
  for (Arrays* arrays : {&a, &b}) arrays->p.resize(n + 5), arrays->m.resize(n + 5);
  std::memmove(b.p.data() + 5, b.p.data(), n * 4);
  for (std::int64_t t = 1; t <= 3; ++t) {
    const AdamArguments arguments = adam_arguments(settings(), {1e-3, 0.1, t}, 1.0, true);
    adam_step(arguments, n, a.p.data(), a.m.data(), a.v.data(), g.data(), nullptr, DType::f32);
    adam_step(arguments, n, b.p.data() + 5, b.m.data(), b.v.data(), g.data(), nullptr, DType::f32);
  }
  CHECK(std::memcmp(a.p.data(), b.p.data() + 5, n * 4) == 0);
}

TEST_CASE("B146: one piece or seven, and a jump of the step number, change no bit") {
  const std::int64_t n = 1003;
  const Arrays start = some_state(n, 21);
  Arrays whole = start, pieces = start, resumed = start;
  for (std::int64_t t = 1; t <= 100; ++t) {
    const std::vector<float> g = some_values(n, 100 + t);
    plan::OptimizerPlan plan = settings();
    if (t > 50) plan.beta1 = 0.8;  // beta changed half-way
    const AdamArguments arguments = adam_arguments(plan, {1e-3, 0.1, t}, 1.0, true);
    step(arguments, whole, g, Isa::best);
    for (int piece = 0; piece < 7; ++piece) {
      const std::int64_t begin = n * piece / 7, end = n * (piece + 1) / 7;
      adam_step(adam_arguments(plan, {1e-3, 0.1, t}, 1.0, true), end - begin,
                pieces.p.data() + begin, pieces.m.data() + begin, pieces.v.data() + begin,
                g.data() + begin, nullptr, DType::f32);
    }
    if (t == 2) resumed = whole;
    if (t == 5) step(arguments, resumed, g, Isa::best);
  }
  CHECK(whole == pieces);
  // Steps 3 and 4 were skipped: only the numbers of step 5 count.
  Arrays again = start;
  for (const std::int64_t t : {1, 2, 5}) {
    step(adam_arguments(settings(), {1e-3, 0.1, t}, 1.0, true), again, some_values(n, 100 + t),
         Isa::best);
  }
  CHECK(again == resumed);
}

TEST_CASE("learning rate 0 moves no weight, but the moments") {
  Arrays arrays{{1.5F, -2.0F}, {0.0F, 0.0F}, {0.0F, 0.0F}};
  step(adam_arguments(settings(), {0.0, 0.1, 1}, 1.0, true), arrays, {0.5F, 0.25F}, Isa::best);
  CHECK(arrays.p == std::vector<float>{1.5F, -2.0F});
  CHECK(arrays.m[0] != 0.0F);
}

TEST_CASE("the factors of a step are computed in double") {
  plan::OptimizerPlan plan;
  plan.beta2 = 0.999;
  const AdamArguments arguments = adam_arguments(plan, {1e-3, 0.1, 1}, 0.5, false);
  // 1 - 0.999f would be 1.3e-5 off.
  CHECK(arguments.one_minus_beta2 == 0.001F);
  CHECK(arguments.decay_factor == 1.0F);
  CHECK(arguments.step_size == Approx(1e-2).epsilon(1e-6));
  CHECK(arguments.gradient_scale == 0.5F);
  const AdamArguments late = adam_arguments(plan, {1e-3, 0.1, 100000}, 1.0, true);
  CHECK(late.bias2_sqrt == 1.0F);
  CHECK(late.step_size == 1e-3F);
  CHECK(late.decay_factor == static_cast<float>(1.0 - 1e-4));
}

}  // namespace rr::optim
