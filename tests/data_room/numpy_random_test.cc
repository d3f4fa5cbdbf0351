// The generators against numbers that NumPy itself drew.
#include "data/numpy_random.h"

#include <numeric>

#include "golden.h"

namespace {

using rr::data::Pcg64;
using rr::data::RandomState;

std::vector<std::int64_t> shuffled(RandomState& random, std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  random.shuffle(values.data(), count);
  return values;
}

TEST_CASE("RandomState draws and shuffles as NumPy does") {
  const auto all = golden::json("numpy_rng.json");
  for (const auto& expected : all["random_state"]) {
    const auto seed = expected["seed"].get<std::uint32_t>();
    CAPTURE(seed);
    RandomState words(seed);
    for (const auto& word : expected["uint32"]) CHECK(words.next() == word.get<std::uint32_t>());
    for (const int count : {0, 1, 2, 3, 4, 5, 8, 9, 31, 100}) {
      CAPTURE(count);
      RandomState random(seed);
      CHECK(shuffled(random, count) ==
            expected["shuffle_" + std::to_string(count)].get<std::vector<std::int64_t>>());
    }
    RandomState random(seed);
    for (const auto& one : expected["two_shuffles_20_30"]) {
      CHECK(shuffled(random, static_cast<std::int64_t>(one.size())) ==
            one.get<std::vector<std::int64_t>>());
    }
  }
}

TEST_CASE("a shuffle that uses the generator's state many times over equals NumPy's") {
  const auto all = golden::json("numpy_rng.json");
  for (const auto& expected : all["random_state"]) {
    RandomState random(expected["seed"].get<std::uint32_t>());
    const auto values = shuffled(random, 70000);
    CHECK(golden::first(values, 32) ==
          expected["shuffle_70000_first32"].get<std::vector<std::int64_t>>());
    CHECK(std::vector<std::int64_t>(values.end() - 8, values.end()) ==
          expected["shuffle_70000_last8"].get<std::vector<std::int64_t>>());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i] * static_cast<std::int64_t>(i + 1);
    }
    CHECK(sum == expected["shuffle_70000_weighted_sum"].get<std::int64_t>());
  }
}

TEST_CASE("PCG64 draws words and bounded integers as NumPy's default_rng does") {
  const auto all = golden::json("numpy_rng.json");
  for (const auto& expected : all["pcg64"]) {
    const auto seed = expected["seed"].get<std::uint32_t>();
    CAPTURE(seed);
    Pcg64 words(seed);
    for (const auto& word : expected["uint64"]) {
      CHECK(std::to_string(words.next64()) == word.get<std::string>());
    }
    Pcg64 lengths(seed);
    for (const auto& value : expected["integers_1_4096_int32"]) {
      CHECK(lengths.integer(1, 4096) == value.get<std::int64_t>());
    }
    Pcg64 digits(seed);
    for (const auto& value : expected["integers_0_10_int64"]) {
      CHECK(digits.integer(0, 10) == value.get<std::int64_t>());
    }
  }
}

TEST_CASE("bounded integers are equally likely where the range does not divide the draws") {
  // 2^32 draws onto 3 * 2^30 values: unless a quarter is drawn again, multiples of 3 come twice as
  // often as the rest, half of the time instead of a third.
  Pcg64 random(1234);
  int multiples = 0;
  for (int i = 0; i < 30000; ++i) multiples += random.integer(0, 3LL << 30) % 3 == 0 ? 1 : 0;
  CHECK(multiples > 9600);
  CHECK(multiples < 10400);  // 10,000 give or take five deviations of 82
}

}  // namespace
