// The CUDA device against the contract of device.h. Without a GPU every case is skipped aloud.
#include "device/device.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "offload/offload.h"

using namespace rr;
using namespace rr::device;

namespace {

// The first GPU; ends the program with the code of a skipped test where there is none.
std::unique_ptr<Device> gpu() {
  try {
    return make_cuda_device(0);
  } catch (const Error& error) {
    std::fprintf(stderr, "SKIPPED: no GPU: %s\n", error.what());
    std::exit(4);
  }
}

std::byte value(std::int64_t i, int salt) { return static_cast<std::byte>((i * 7 + salt) % 251); }

void fill(Span host, int salt) {
  for (std::int64_t i = 0; i < host.bytes; ++i) host.data[i] = value(i, salt);
}

std::int64_t wrong_bytes(Span host, int salt) {
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < host.bytes; ++i) wrong += host.data[i] != value(i, salt);
  return wrong;
}

}  // namespace

TEST_CASE("GPU: slabs are zeroed, exact in the count, and too large ones are refused") {
  const auto device = gpu();
  const Span memory = device->allocate(Pool::device, 100'001, "weights");
  const Span host = device->allocate(Pool::host, 100'001, "slab");
  fill(host, 1);
  device->copy(Stream::d2h, host, memory);
  device->synchronize(device->record(Stream::d2h));
  CHECK(std::count(host.data, host.data + host.bytes, std::byte{0}) == host.bytes);
  CHECK(device->usage(Pool::device).now == 100'001);
  CHECK_THROWS_WITH(device->allocate(Pool::device, std::int64_t{1} << 50, "too much"),
                    Catch::Contains("too much") && Catch::Contains("GPU"));
  CHECK_THROWS_WITH(device->allocate(Pool::host, std::int64_t{1} << 50, "too much"),
                    Catch::Contains("pinned"));
  CHECK(device->usage(Pool::device).now == 100'001);
  device->release(memory);
  device->release(host);
  CHECK_NOTHROW(device->synchronize_all());  // the refusals left no error behind
}

TEST_CASE("GPU: copies follow events across streams") {
  const auto device = gpu();
  const std::int64_t bytes = 8 << 20;
  const Span a = device->allocate(Pool::host, bytes, "a"),
             b = device->allocate(Pool::host, bytes, "b");
  const Span memory = device->allocate(Pool::device, bytes, "memory");
  for (int round = 0; round < 10; ++round) {
    fill(a, round);
    device->copy(Stream::h2d, memory, a);
    device->wait(Stream::d2h, device->record(Stream::h2d));
    device->copy(Stream::d2h, b, memory);
    const Event done = device->record(Stream::d2h);
    device->wait(Stream::h2d, done);  // the next round overwrites
    device->synchronize(done);
    CHECK(wrong_bytes(b, round) == 0);
  }
  for (const Span& span : {a, b, memory}) device->release(span);
}

TEST_CASE("GPU: host work runs in stream order, and its failure is told once") {
  const auto device = gpu();
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) device->run(Stream::comm, [&, i] { order.push_back(i); });
  device->synchronize(device->record(Stream::comm));
  REQUIRE(order.size() == 20);
  for (int i = 0; i < 20; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  device->run(Stream::d2h, [] { throw Error("host work failed"); });
  CHECK_THROWS_WITH(device->synchronize(device->record(Stream::d2h)), "host work failed");
  CHECK_NOTHROW(device->synchronize_all());
}

TEST_CASE("GPU: the activation store brings every byte back, and memory falls meanwhile") {
  const auto device = gpu();
  const std::int64_t bytes = 4'000'003;
  const Span host = device->allocate(Pool::host, bytes, "values");
  std::vector<Span> back;
  {
    offload::Store store(*device, true);
    for (int layer = 0; layer < 4; ++layer) {
      const Span memory = device->allocate(Pool::device, bytes, "activation");
      fill(host, layer);
      device->copy(Stream::compute, memory, host);
      device->synchronize(device->record(Stream::compute));
      store.put({0, 0, layer}, memory, [&device, memory] {
        device->synchronize_all();  // a raw slab, unlike torch's, goes back to the driver
        device->release(memory);
      });
      store.end_layer({0, 0, layer});
    }
    store.end_layer({0, 0, 4});
    CHECK(device->usage(Pool::device).now == 0);
    const offload::Store::Allocate allocate = [&](std::int64_t size) {
      return back.emplace_back(device->allocate(Pool::device, size, "reloaded activation"));
    };
    for (int layer = 3; layer >= 0; --layer) {
      if (layer > 0) store.prefetch({0, 0, layer - 1}, allocate);
      const Span memory = store.get({0, 0, layer}, 0, allocate);
      device->copy(Stream::compute, host, memory);
      device->synchronize(device->record(Stream::compute));
      CHECK(wrong_bytes(host, layer) == 0);
      store.drop({0, 0, layer});
    }
  }
  for (const Span& span : back) device->release(span);
  device->release(host);
  CHECK(device->usage(Pool::host).now == 0);
}
