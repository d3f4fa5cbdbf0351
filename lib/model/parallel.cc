// OpenMP's entry points and the BLAS that torch's library brings, called by their C names.
#include "model/parallel.h"

#include <algorithm>
#include <atomic>

extern "C" {
void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags);
int omp_get_max_threads(void);
int omp_get_thread_num(void);
int omp_in_parallel(void);
void sgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
}

namespace rr::model {

namespace {

constexpr std::int64_t kWorthThreads = 1 << 15;

struct Loop {
  std::int64_t count;
  const std::function<void(std::int64_t, int)>* work;
  std::atomic<std::int64_t> next{0};
};

void run(void* data) {
  auto& loop = *static_cast<Loop*>(data);
  const int thread = omp_get_thread_num();
  for (std::int64_t item = loop.next++; item < loop.count; item = loop.next++) {
    (*loop.work)(item, thread);
  }
}

}  // namespace

int max_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

void for_items(std::int64_t count, std::int64_t cost,
               const std::function<void(std::int64_t, int)>& work) {
  if (count <= 1 || cost < kWorthThreads || max_threads() == 1) {
    for (std::int64_t item = 0; item < count; ++item) work(item, 0);
    return;
  }
  Loop loop{count, &work};
  // Always the full team: a changing team size makes OpenMP end and start threads.
  GOMP_parallel(run, &loop, 0, 0);
}

void for_ranges(std::int64_t count, std::int64_t grain, std::int64_t cost,
                const std::function<void(std::int64_t, std::int64_t)>& work) {
  for_items((count + grain - 1) / grain, cost, [&](std::int64_t item, int) {
    work(item * grain, std::min(count, (item + 1) * grain));
  });
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Matrix a, Matrix b,
          float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(std::max<std::int64_t>(a.ld, 1));
  const int ldb = static_cast<int>(std::max<std::int64_t>(b.ld, 1));
  const int ld_out = static_cast<int>(ldc);
  // Fortran sees every matrix transposed: c^T = op(b)^T op(a)^T.
  sgemm_(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &columns, &rows, &inner, &alpha,
         b.data, &ldb, a.data, &lda, &beta, c, &ld_out);
}

}  // namespace rr::model
