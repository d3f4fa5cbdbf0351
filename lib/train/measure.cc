// Measures the rates of this machine: the best of a few passes each, since whatever else runs here
// only ever makes a pass slower.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"
#include "optim/optim.h"
#include "train/train.h"

namespace rr::train {
namespace {

using Floats = std::vector<float>;

constexpr std::int64_t kElements = std::int64_t{1} << 24;  // 64 MiB of floats: beyond most caches
constexpr int kPasses = 3;

// The shortest of `passes` calls of `work`, in seconds.
template <class Work>
double shortest(int passes, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < passes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

// b += a on all cores: two reads and a write per element.
double stream_gbps(ThreadPool& threads) {
  Floats a(2 * kElements, 1.0F), b(2 * kElements, 2.0F);
  const double seconds = shortest(kPasses, [&] {
    threads.for_ranges(2 * kElements, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        b[static_cast<std::size_t>(i)] += a[static_cast<std::size_t>(i)];
    });
  });
  return 3.0 * sizeof(float) * 2 * kElements / seconds / 1e9;
}

double copy_gbps() {
  const Floats from(2 * kElements, 1.0F);
  Floats to(2 * kElements, 0.0F);
  const double seconds =
      shortest(kPasses, [&] { std::memcpy(to.data(), from.data(), from.size() * sizeof(float)); });
  return static_cast<double>(from.size() * sizeof(float)) / seconds / 1e9;
}

double core_gparams() {
  Floats p(kElements, 1.0F), m(kElements, 0.0F), v(kElements, 0.0F), g(kElements, 0.1F);
  const optim::AdamArguments arguments{.one_minus_beta1 = 0.1F,
                                       .beta2 = 0.999F,
                                       .one_minus_beta2 = 0.001F,
                                       .epsilon = 1e-8F,
                                       .decay_factor = 1.0F,
                                       .step_size = 1e-4F,
                                       .bias2_sqrt = 1.0F,
                                       .gradient_scale = 1.0F};
  const double seconds = shortest(kPasses, [&] {
    optim::adam_step(arguments, kElements, p.data(), m.data(), v.data(), g.data(), nullptr,
                     DType::f32);
  });
  return static_cast<double>(kElements) / seconds / 1e9;
}

// bf16 products compute in fp32 where the CPU has no instructions for them.
double matmul_tflops() {
  constexpr std::int64_t kSize = 1024;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  at::Tensor c = at::empty({kSize, kSize});
  const double seconds = shortest(2 * kPasses, [&] { at::mm_out(c, a, b); });
  return 2.0 * kSize * kSize * kSize / seconds / 1e12;
}

double wake_us() {
  constexpr int kRounds = 200;
  std::binary_semaphore here(0), there(0);
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      there.acquire();
      here.release();
    }
  });
  const double seconds = shortest(1, [&] {
    for (int i = 0; i < kRounds; ++i) {
      there.release();
      here.acquire();
    }
  });
  other.join();
  return seconds / (2 * kRounds) * 1e6;
}

}  // namespace

MachineRates measure_machine() {
  MachineRates rates;
  rates.cores = usable_cores();
  rates.memory_bytes = usable_memory();
  {
    ThreadPool threads(rates.cores);
    rates.stream_gbps = stream_gbps(threads);
  }
  rates.copy_gbps = copy_gbps();
  rates.core_gparams = core_gparams();
  at::set_num_threads(rates.cores);
  rates.matmul_tflops = matmul_tflops();
  rates.wake_us = wake_us();
  return rates;
}

}  // namespace rr::train
