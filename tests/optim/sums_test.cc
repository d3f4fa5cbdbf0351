// Squared norms and counts of zeros.
#include "optim/sums.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "optim/golden.h"
#include "optim/optim.h"

namespace rr::optim {

TEST_CASE("a sum of squares is right and the same for every number of threads") {
  ThreadPool one(1), three(3);
  for (const std::int64_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 300000}) {
    const std::vector<float> x = some_values(n, 3 + n);
    long double exact = 0;
    for (const float value : x) exact += static_cast<long double>(value) * value;
    const double sum = sum_of_squares(x.data(), n);
    INFO("n " << n);
    // n roundings of 1e-16 each stay far below.
    CHECK(sum == Approx(static_cast<double>(exact)).epsilon(1e-13));
    CHECK(sum_of_squares(x.data(), n, one) == sum);
    CHECK(sum_of_squares(x.data(), n, three) == sum);
  }
}

TEST_CASE("the order of a sum of squares is fixed: sixteen lanes, halves, blocks in pairs") {
  // 1 + 2^-53 rounds to 1, but 2^-53 + 2^-53 survives: the order shows in the result.
  const float tiny = 0x1p-27F;  // squared: 2^-54
  std::vector<float> x(17, 0.0F);
  x[0] = 1.0F, x[1] = x[9] = 0x1.6a09e6p-27F;  // lanes 1 and 9 meet first: about 2^-52
  CHECK(sum_of_squares(x.data(), 17) > 1.0);
  x = std::vector<float>(17, 0.0F);
  x[0] = 1.0F, x[16] = tiny;  // same lane: lost
  CHECK(sum_of_squares(x.data(), 17) == 1.0);
  std::vector<float> blocks(3 * 4096, 0.0F);
  blocks[0] = 1.0F, blocks[4096] = 0x1p-27F, blocks[2 * 4096] = 0x1p-27F;
  CHECK(sum_of_squares(blocks.data(), 3 * 4096) == 1.0);  // (1 + tiny) + tiny
  CHECK(sum_of_squares(blocks.data() + 4096, 2 * 4096) == 0x1p-53);
}

TEST_CASE("a sum of squares of huge floats does not overflow, of NaN and infinity is not finite") {
  std::vector<float> x(5000, 3e38F);
  CHECK(sum_of_squares(x.data(), 5000) == Approx(4.5e80).epsilon(1e-6));
  x[4999] = std::numeric_limits<float>::infinity();
  CHECK(!std::isfinite(sum_of_squares(x.data(), 5000)));
  x[4999] = std::numeric_limits<float>::quiet_NaN();
  CHECK(!std::isfinite(sum_of_squares(x.data(), 5000)));
}

TEST_CASE("zeros of both signs are counted, denormals and NaN are not zero") {
  ThreadPool threads(2);
  std::vector<float> x(9001, 1.0F);
  x[0] = 0.0F, x[4096] = -0.0F, x[9000] = 0.0F, x[5] = 1e-45F;
  x[6] = std::numeric_limits<float>::quiet_NaN();
  CHECK(count_zeros(x.data(), 9001, threads) == 3.0);
}

}  // namespace rr::optim
