// How close adam_step comes to a pass that reads and writes the same bytes and does nothing else,
// measured in the same run: adam_bench [THREADS] prints ns per parameter and the ratio. No test.
#include <emmintrin.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "base/threads.h"
#include "device/device.h"
#include "optim/optim.h"

namespace {

using namespace rr;

// Median of a few passes over `n` elements, in ns per element.
double measure(ThreadPool& threads, std::int64_t n,
               const std::function<void(std::int64_t, std::int64_t)>& work) {
  const std::int64_t passes = std::max<std::int64_t>(5, (std::int64_t{1} << 26) / n);
  std::vector<double> times;
  for (std::int64_t i = 0; i < passes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    threads.for_ranges(n, 16384, work);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count() / static_cast<double>(n));
  }
  std::nth_element(times.begin(), times.begin() + passes / 2, times.end());
  return times[static_cast<std::size_t>(passes / 2)];
}

// Reads p, m, v, g and writes p, m, v and, for bf16, half a word more: the limit. By hand in
// 16-byte vectors, since the compiler does not vectorise it at -O2. n is a multiple of 8.
void touch(std::int64_t n, float* p, float* m, float* v, const float* g, std::uint16_t* weight) {
  const __m128i words = _mm_set1_epi16(0x3f80);
  for (std::int64_t i = 0; i < n; i += 4) {
    const __m128 add = _mm_loadu_ps(g + i);
    _mm_storeu_ps(p + i, _mm_add_ps(_mm_loadu_ps(p + i), add));
    _mm_storeu_ps(m + i, _mm_add_ps(_mm_loadu_ps(m + i), add));
    _mm_storeu_ps(v + i, _mm_add_ps(_mm_loadu_ps(v + i), add));
    if (weight && i % 8 == 0) _mm_storeu_si128(reinterpret_cast<__m128i*>(weight + i), words);
  }
}

void bench(ThreadPool& threads, std::int64_t n, DType dtype) {
  const auto device = device::make_cpu_device();
  const auto array = [&] { return device->allocate(Pool::host, n * 4, "bench").as<float>(); };
  float *p = array(), *m = array(), *v = array(), *g = array();
  std::uint16_t* half = dtype == DType::bf16 ? reinterpret_cast<std::uint16_t*>(array()) : nullptr;
  for (std::int64_t i = 0; i < n; ++i) g[i] = 1e-3F * static_cast<float>(i % 1000 - 500);
  const optim::AdamArguments arguments =
      optim::adam_arguments(plan::OptimizerPlan{}, {1e-4, 0.1, 10}, 0.5, true);
  const double limit = measure(threads, n, [&](std::int64_t begin, std::int64_t end) {
    touch(end - begin, p + begin, m + begin, v + begin, g + begin, half ? half + begin : nullptr);
  });
  fmt::print("{:>10} elements, {:>4} out: read and write {:.3f} ns", n, name_of(dtype), limit);
  for (const auto& [isa, name] :
       {std::pair{optim::Isa::generic, "generic"}, std::pair{optim::Isa::avx2, "avx2"},
        std::pair{optim::Isa::avx512, "avx512"}}) {
    if (!optim::isa_available(isa)) continue;
    if (isa == optim::Isa::generic && n > (1 << 22)) continue;  // seconds, and always the same
    const double time = measure(threads, n, [&](std::int64_t begin, std::int64_t end) {
      void* out = half ? static_cast<void*>(half + begin) : p + begin;
      optim::adam_step(arguments, end - begin, p + begin, m + begin, v + begin, g + begin, out,
                       dtype, isa);
    });
    fmt::print(", {} {:.3f} ({:.2f}x)", name, time, time / limit);
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool threads(argc > 1 ? std::max(1, std::atoi(argv[1])) : usable_cores());
  fmt::print("{} threads\n", threads.size());
  for (const std::int64_t n : {1 << 14, 1 << 20, 1 << 24}) {
    for (const DType dtype : {DType::f32, DType::bf16}) bench(threads, n, dtype);
  }
}
