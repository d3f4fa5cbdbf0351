// Random numbers against the published Philox vectors and the quantiles of Python's NormalDist.
#include "base/random.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace {

using rr::philox4x32;
using rr::PhiloxBlock;
using rr::RandomStream;

constexpr const char* kName = "decoder.layers.0.mlp.linear_fc1.weight";

std::vector<float> normals(const RandomStream& stream, std::uint64_t first, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  stream.normal(first, count, 1.0F, values.data());
  return values;
}

TEST_CASE("Philox4x32-10 gives the vectors published with Random123") {
  CHECK(philox4x32({0, 0, 0, 0}, 0, 0) ==
        PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, ones, ones) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a stream's bits are fixed for ever by seed, name and index") {
  const RandomStream stream(1234, kName);
  const std::uint32_t expected[] = {0x5a84510b, 0x9ded75a3, 0xa07d9c19, 0xef071396,
                                    0x89495827, 0xc8fe7c22, 0x3b09f1c1, 0xdfad522e};
  for (std::uint64_t i = 0; i < 8; ++i) CHECK(stream.bits(i) == expected[i]);
  CHECK(stream.bits((std::uint64_t{1} << 40) + 3) == 0x668faf6c);
  CHECK(RandomStream(1235, kName).bits(0) != expected[0]);
  CHECK(RandomStream(1234, "decoder.layers.1.mlp.linear_fc1.weight").bits(0) != expected[0]);
}

TEST_CASE("normals are the quantiles that an independent implementation gives") {
  const double expected[] = {-0.3756690072105632, 0.29736113735652175, 0.32369798806456124,
                             1.5039410662044075,  0.09105459834937274, 0.7896473673588817,
                             -0.73680494145538,   1.1442423069247096};
  const RandomStream stream(1234, kName);
  const std::vector<float> values = normals(stream, 0, 8);
  // AS 241's PPND7 promises 1e-7, rounding to float adds 6e-8.
  for (int i = 0; i < 8; ++i) CHECK(values[i] == Approx(expected[i]).epsilon(2e-7).margin(0));
  CHECK(normals(stream, (std::uint64_t{1} << 40) + 3, 1)[0] ==
        Approx(-0.2517168578190922).epsilon(2e-7).margin(0));
}

TEST_CASE("every normal's distribution function returns the probability it was drawn with") {
  const RandomStream stream(7, "quantiles");
  const int count = 300000;
  const std::vector<float> values = normals(stream, 0, count);
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    const double p = (stream.bits(static_cast<std::uint64_t>(i)) + 0.5) * 0x1p-32;
    const double x = values[static_cast<std::size_t>(i)];
    // From the nearer tail, where the error function keeps its digits.
    const double tail = std::erfc(std::fabs(x) / std::sqrt(2.0)) / 2;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    const double error = std::fabs(tail - std::min(p, 1 - p)) / density;  // of x, first order
    worst = std::max(worst, error / std::fabs(x));
    REQUIRE((x < 0) == (p < 0.5));
  }
  CHECK(worst < 3e-7);
}

TEST_CASE("normals have the moments of a standard normal") {
  const int count = 1 << 20;
  const std::vector<float> values = normals(RandomStream(1, "moments"), 0, count);
  double sum[5] = {};
  int beyond3 = 0;
  for (const float value : values) {
    double power = 1;
    for (double& s : sum) {
      s += power;
      power *= value;
    }
    beyond3 += std::fabs(value) > 3 ? 1 : 0;
  }
  // Six standard errors of each estimate: sqrt(1, 2, 15, 96) / 1024.
  CHECK(std::fabs(sum[1] / count) < 6 * 1.0 / 1024);
  CHECK(std::fabs(sum[2] / count - 1) < 6 * 1.42 / 1024);
  CHECK(std::fabs(sum[3] / count) < 6 * 3.88 / 1024);
  CHECK(std::fabs(sum[4] / count - 3) < 6 * 9.8 / 1024);
  CHECK(std::fabs(beyond3 / double{count} - 0.0026998) < 6 * 0.0519 / 1024);
}

TEST_CASE("any split of a range gives the same bits") {
  const RandomStream stream(99, "split");
  const std::vector<float> whole = normals(stream, 5, 3000);
  for (const std::int64_t cut : {1, 2, 3, 4, 509, 512, 515, 2999}) {
    std::vector<float> parts = normals(stream, 5, cut);
    const auto rest = normals(stream, 5 + static_cast<std::uint64_t>(cut), 3000 - cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    REQUIRE(parts == whole);
  }
}

TEST_CASE("the bits of normals are the same on every machine") {
  // Central part, both tails and the deviation's product; printed once, equal at -O0, -O2, -O3 and
  // with AVX2 code.
  std::vector<float> values(4096);
  RandomStream(2024, "golden").normal(17, 4096, 0.02F, values.data());
  std::uint64_t hash = 0;
  for (const float value : values)
    hash = hash * 0x100000001b3ULL + std::bit_cast<std::uint32_t>(value);
  CHECK(hash == 0x66db630bd0edecb5ULL);
}

TEST_CASE("uniform numbers lie from 0 to below 1 on a grid of 2^-24 and fill it evenly") {
  const RandomStream stream(3, "uniform");
  int tenths[10] = {};
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float u = stream.uniform(i);
    REQUIRE(u >= 0.0F);
    REQUIRE(u < 1.0F);
    REQUIRE(u * 0x1p24F == std::floor(u * 0x1p24F));
    ++tenths[static_cast<int>(u * 10)];
  }
  for (const int tenth : tenths) CHECK(std::abs(tenth - 10000) < 6 * 95);
}

TEST_CASE("hash64 is FNV-1a") {
  CHECK(rr::hash64("") == 0xcbf29ce484222325ULL);
  CHECK(rr::hash64("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(rr::hash64("foobar") == 0x85944171f73967e8ULL);
}

}  // namespace
