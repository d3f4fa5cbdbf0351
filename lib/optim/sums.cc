// Squared norms in a fixed order, and counts of zeros.
//
// The square of a float is exact in double, so only the order of the additions matters: within a
// block sixteen interleaved sums, then halves with halves; over blocks likewise.
#include "optim/sums.h"

#include <algorithm>
#include <vector>

#include "optim/optim.h"

namespace rr::optim {

namespace {

constexpr std::int64_t kBlock = 4096;
constexpr int kLanes = 16;

double block_sum(const float* data, std::int64_t n) {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = data[i + lane];
      lanes[lane] += x * x;
    }
  }
  for (int lane = 0; i < n; ++i, ++lane) {
    const double x = data[i];
    lanes[lane] += x * x;
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// The left part is the largest power of two below n.
double pairwise(const double* sums, std::int64_t n) {
  if (n == 0) return 0.0;
  if (n == 1) return sums[0];
  std::int64_t left = 1;
  while (left * 2 < n) left *= 2;
  return pairwise(sums, left) + pairwise(sums + left, n - left);
}

void block_sums(const float* data, std::int64_t n, std::int64_t first, std::int64_t last,
                double* sums) {
  for (std::int64_t block = first; block < last; ++block) {
    const std::int64_t begin = block * kBlock;
    sums[block] = block_sum(data + begin, std::min(kBlock, n - begin));
  }
}

}  // namespace

double sum_of_squares(const float* data, std::int64_t n) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(n, kBlock)));
  block_sums(data, n, 0, static_cast<std::int64_t>(sums.size()), sums.data());
  return pairwise(sums.data(), static_cast<std::int64_t>(sums.size()));
}

double sum_of_squares(const float* data, std::int64_t n, ThreadPool& threads) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(n, kBlock)));
  threads.for_ranges(static_cast<std::int64_t>(sums.size()), 16,
                     [&](std::int64_t first, std::int64_t last) {
                       block_sums(data, n, first, last, sums.data());
                     });
  return pairwise(sums.data(), static_cast<std::int64_t>(sums.size()));
}

double sum_of_squares(std::int64_t n, const ReadValues& read, ThreadPool& threads) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(n, kBlock)));
  threads.for_ranges(static_cast<std::int64_t>(sums.size()), 16,
                     [&](std::int64_t first, std::int64_t last) {
                       std::vector<float> values(kBlock);
                       for (std::int64_t block = first; block < last; ++block) {
                         const std::int64_t size = std::min(kBlock, n - block * kBlock);
                         read(block * kBlock, size, values.data());
                         sums[block] = block_sum(values.data(), size);
                       }
                     });
  return pairwise(sums.data(), static_cast<std::int64_t>(sums.size()));
}

double count_zeros(const float* data, std::int64_t n, ThreadPool& threads) {
  std::vector<double> counts(static_cast<std::size_t>(ceil_div(n, kBlock)));
  threads.for_ranges(static_cast<std::int64_t>(counts.size()), 16,
                     [&](std::int64_t first, std::int64_t last) {
                       for (std::int64_t block = first; block < last; ++block) {
                         const float* begin = data + block * kBlock;
                         const std::int64_t size = std::min(kBlock, n - block * kBlock);
                         counts[block] = static_cast<double>(std::count(begin, begin + size, 0.0F));
                       }
                     });
  return pairwise(counts.data(), static_cast<std::int64_t>(counts.size()));
}

}  // namespace rr::optim
