// Pools and slabs of the CPU device: exact sizes, zeros, limits, peaks, and the absent CUDA device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"

using namespace rr;
using namespace rr::device;

namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Unused under a sanitizer.
[[maybe_unused]] std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

}  // namespace

TEST_CASE("slabs are zeroed, aligned to a page and counted to the byte") {
  auto device = make_cpu_device();
  for (const std::int64_t bytes : {1, 4095, 65535, 65536, 65537, 3 * 1024 * 1024 + 1}) {
    for (const Pool pool : {Pool::device, Pool::host}) {
      const Span span = device->allocate(pool, bytes, "slab");
      CHECK(reinterpret_cast<std::uintptr_t>(span.data) % 4096 == 0);
      CHECK(span.bytes == bytes);
      CHECK(span.pool == pool);
      CHECK(
          std::all_of(span.data, span.data + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::fill(span.data, span.data + bytes, std::byte{0xff});
      CHECK(device->usage(pool).now == bytes);
      device->release(span);
      CHECK(device->usage(pool).now == 0);
    }
  }
  CHECK(device->usage(Pool::host).allocations == 6);
  CHECK(device->usage(Pool::host).peak == 3 * 1024 * 1024 + 1);
}

TEST_CASE("an empty slab is allowed and costs nothing") {
  auto device = make_cpu_device({.device_limit = 1, .host_limit = 1});
  const Span span = device->allocate(Pool::host, 0, "nothing");
  CHECK(span.bytes == 0);
  device->release(span);
  CHECK(device->usage(Pool::host).allocations == 0);
}

TEST_CASE("an allocation beyond the limit names the slab, its size and what is left") {
  auto device = make_cpu_device({.device_limit = 10'000, .host_limit = 0});
  const Span first = device->allocate(Pool::device, 7'000, "weights");
  const std::string message =
      message_of([&] { device->allocate(Pool::device, 3'001, "main gradients"); });
  CHECK_THAT(message, Catch::Contains("main gradients"));
  CHECK_THAT(message, Catch::Contains("3,001 bytes"));
  CHECK_THAT(message, Catch::Contains("device pool"));
  CHECK_THAT(message, Catch::Contains("3.00 kB of 10.00 kB are left"));
  // The refused one left no trace, and exactly what is left still fits.
  CHECK(device->usage(Pool::device).now == 7'000);
  CHECK(device->usage(Pool::device).peak == 7'000);
  const Span second = device->allocate(Pool::device, 3'000, "main gradients");
  CHECK(device->usage(Pool::device).now == 10'000);
  // The other pool has its own limit.
  const Span host = device->allocate(Pool::host, 20'000, "slab");
  for (const Span& span : {first, second, host}) device->release(span);
}

TEST_CASE("a slab the system cannot give is an error with its size") {
  auto device = make_cpu_device();
  const std::string message =
      message_of([&] { device->allocate(Pool::host, std::int64_t{1} << 56, "pinned state"); });
  CHECK_THAT(message, Catch::Contains("pinned state"));
  CHECK_THAT(message, Catch::Contains("72,057,594,037,927,936 bytes"));
  CHECK(device->usage(Pool::host).now == 0);
}

TEST_CASE("peaks count from the last reset and include reported bytes") {
  auto device = make_cpu_device();
  const Span a = device->allocate(Pool::device, 100, "a");
  const Span b = device->allocate(Pool::device, 50, "b");
  device->release(b);
  CHECK(device->usage(Pool::device).peak == 150);
  device->reset_peaks();
  CHECK(device->usage(Pool::device).peak == 100);
  device->report(Pool::device, 1000);
  device->report(Pool::device, -1000);
  CHECK(device->usage(Pool::device).now == 100);
  CHECK(device->usage(Pool::device).peak == 1100);
  CHECK(device->usage(Pool::device).allocations == 3);
  CHECK(device->usage(Pool::host).peak == 0);
  device->release(a);
}

TEST_CASE("reported bytes take room from the limit") {
  auto device = make_cpu_device({.device_limit = 1000, .host_limit = 0});
  device->report(Pool::device, 900);
  CHECK_THROWS_AS(device->allocate(Pool::device, 101, "a"), Error);
  const Span span = device->allocate(Pool::device, 100, "a");
  device->release(span);
  device->report(Pool::device, 500);  // never refused
  CHECK_THROWS_AS(device->allocate(Pool::device, 1, "a"), Error);
}

TEST_CASE("counts are exact when many threads allocate and report at once") {
  auto device = make_cpu_device();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const Span span = device->allocate(Pool::host, 64, "piece");
        device->report(Pool::device, 10);
        device->release(span);
        device->report(Pool::device, -10);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(device->usage(Pool::host).now == 0);
  CHECK(device->usage(Pool::device).now == 0);
  CHECK(device->usage(Pool::host).allocations == 2000);
  CHECK(device->usage(Pool::host).peak >= 64);
  CHECK(device->usage(Pool::host).peak <= 4 * 64);
}

// Public case B103: a pinned allocator that rounds to powers of two takes up to 1.9 times the RAM.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // their shadow counts as ours
TEST_CASE("B103: slabs just above a power of two take no more memory than asked for") {
  auto device = make_cpu_device();
  const std::int64_t bytes = (std::int64_t{16} << 20) + 8;
  const std::int64_t before = resident_bytes();
  std::vector<Span> spans;
  for (int i = 0; i < 3; ++i) {
    spans.push_back(device->allocate(Pool::host, bytes, "state"));
    std::fill(spans.back().data, spans.back().data + bytes, std::byte{1});
  }
  CHECK(resident_bytes() - before <= 3 * bytes * 11 / 10);
  for (const Span& span : spans) device->release(span);
  CHECK(resident_bytes() - before <= bytes / 4);  // and all of it goes back to the system
}
#endif

TEST_CASE("without CUDA or without a GPU, asking for one says what is missing") {
  const std::string message = message_of([] { make_cuda_device(1000); });
  CHECK_THAT(message, Catch::Contains("RR_CUDA") || Catch::StartsWith("CUDA: "));
}
