// Sums over gradients and weights whose bits depend on the values alone: not on the CPU, the
// threads or the cut into pieces of work.
#pragma once

#include <cstdint>
#include <functional>

#include "base/threads.h"

namespace rr::optim {

// As sum_of_squares, its blocks spread over the pool: the same bits.
double sum_of_squares(const float* data, std::int64_t n, ThreadPool& threads);

// As sum_of_squares, of n values that do not lie in one array: read(begin, count, out) copies some.
// The same bits as if they did. Reads come from the pool's threads.
using ReadValues = std::function<void(std::int64_t begin, std::int64_t count, float* out)>;
double sum_of_squares(std::int64_t n, const ReadValues& read, ThreadPool& threads);

// How many of data[0 .. n) are zero, of either sign.
double count_zeros(const float* data, std::int64_t n, ThreadPool& threads);

}  // namespace rr::optim
