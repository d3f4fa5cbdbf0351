// Loops over torch's own OpenMP threads, and its BLAS, without torch's headers.
//
// Our objects are built without -fopenmp, so at::parallel_for in them would run on one thread; a
// pool of our own would fight with OpenMP's threads for the cores. Results never depend on the
// number of threads: whoever calls cuts the work at fixed places.
#pragma once

#include <cstdint>
#include <functional>

namespace rr::model {

// Threads a loop started from this thread may use.
int max_threads();

// work(item, thread) for every item of [0, count), in any order; thread < max_threads() and unique
// among the calls that run at the same time. `work` must not throw. Inside such a loop: serial.
// `cost`: elementary operations of all items together; few run on the calling thread alone, since
// waking the others costs more.
void for_items(std::int64_t count, std::int64_t cost,
               const std::function<void(std::int64_t item, int thread)>& work);

// work(begin, end) on ranges that cover [0, count), cut at multiples of `grain`.
void for_ranges(std::int64_t count, std::int64_t grain, std::int64_t cost,
                const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// Row-major matrices: c[m, n] = alpha * op(a) op(b) + beta * c, where op transposes when asked
// (then a is stored [k, m], b [n, k]); ld are row strides. beta 0 never reads c.
struct Matrix {
  const float* data;
  std::int64_t ld;
  bool transposed = false;
};
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Matrix a, Matrix b,
          float beta, float* c, std::int64_t ldc);

}  // namespace rr::model
