// The activation store: values survive, storage is released at boundaries, peaks repeat.
#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "offload/rehearsal.h"

using namespace rr;
using namespace rr::offload;
using rr::test::Rehearsal;
using rr::test::Shape;

namespace {

std::unique_ptr<device::Device> late_device(std::uint64_t seed) {
  return device::make_faulty_device(device::make_cpu_device(), {.seed = seed, .max_delay_us = 200});
}

struct Outcome {
  std::int64_t device_peak = 0, host_peak = 0, wrong = 0, checked = 0;
  Totals totals;
};

Outcome rehearse(std::uint64_t seed, const Shape& shape, int micro_batches, int ahead,
                 bool retain = false) {
  const auto device = late_device(seed);
  Outcome outcome;
  {
    Store store(*device, retain);
    Rehearsal rehearsal(*device, store, shape);
    rehearsal.run(micro_batches, ahead);
    outcome.totals = store.totals();
    outcome.wrong = rehearsal.wrong_bytes();
    outcome.checked = rehearsal.checked_bytes();
  }
  outcome.device_peak = device->usage(Pool::device).peak;
  outcome.host_peak = device->usage(Pool::host).peak;
  CHECK(device->usage(Pool::device).now == 0);
  CHECK(device->usage(Pool::host).now == 0);
  return outcome;
}

std::int64_t layer_bytes(const Shape& shape) {
  return std::accumulate(shape.piece_bytes.begin(), shape.piece_bytes.end(), std::int64_t{0});
}

}  // namespace

// Public cases B096 (storage freed under a running copy) and B097 (zero and odd sizes).
TEST_CASE("B096, B097: values survive late copies, any schedule and reused storage") {
  const Shape shape{};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const int ahead = static_cast<int>(seed % 4) + 1;
    const bool retain = seed % 2 == 0;
    const Outcome outcome = rehearse(seed, shape, 5, ahead, retain);
    CHECK(outcome.wrong == 0);
    CHECK(outcome.checked == 5 * shape.layers * layer_bytes(shape));
  }
}

// Public case B094: the wrong layers went. B095: memory did not fall.
TEST_CASE("B094, B095: exactly n layers leave, and the device peak falls with each") {
  Shape shape{.layers = 8, .offloaded = 0, .piece_bytes = {30'000, 10'000}};
  const std::int64_t all = shape.layers * layer_bytes(shape);
  std::int64_t last_peak = rehearse(0, shape, 2, 1).device_peak;
  CHECK(last_peak == 2 * all);  // two micro-batches in flight
  for (int n = 1; n < shape.layers; ++n) {
    shape.offloaded = n;
    const Outcome outcome = rehearse(static_cast<std::uint64_t>(n), shape, 2, 1);
    CHECK(outcome.totals.bytes_out == 2 * n * layer_bytes(shape));
    CHECK(outcome.totals.bytes_in == outcome.totals.bytes_out);
    CHECK(outcome.totals.host_peak == 2 * n * layer_bytes(shape));
    CHECK(outcome.host_peak == outcome.totals.host_peak);
    CHECK(outcome.device_peak < last_peak);
    last_peak = outcome.device_peak;
  }
}

TEST_CASE("the device peak does not depend on how late the copies are") {
  const Shape shape{.layers = 6, .offloaded = 4};
  const Outcome first = rehearse(0, shape, 4, 2);
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    const Outcome outcome = rehearse(seed, shape, 4, 2);
    CHECK(outcome.device_peak == first.device_peak);
    CHECK(outcome.host_peak == first.host_peak);
  }
}

TEST_CASE(
    "storage is released on the calling thread, at the next layer's boundary and no earlier") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  std::vector<std::thread::id> released;
  const Span span = device->allocate(Pool::device, 100, "a");
  store.put({0, 0, 0}, span, [&] { released.push_back(std::this_thread::get_id()); });
  device->synchronize_all();
  store.end_layer({0, 0, 0});
  CHECK(released.empty());  // although the copy has long ended
  store.end_layer({0, 0, 1});
  REQUIRE(released.size() == 1);
  CHECK(released.front() == std::this_thread::get_id());
  store.end_layer({0, 0, 2});
  store.drop({0, 0, 0});
  CHECK(released.size() == 1);
  device->release(span);
}

TEST_CASE("what a release callback holds is gone after the boundary") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  const Span span = device->allocate(Pool::device, 100, "a");
  auto tensor = std::make_shared<int>(0);
  store.put({0, 0, 0}, span, [tensor] {});
  CHECK(tensor.use_count() == 2);
  store.end_layer({0, 0, 1});
  CHECK(tensor.use_count() == 1);
  store.drop({0, 0, 0});
  device->release(span);
}

TEST_CASE("the last layer's pieces come back although no boundary followed") {
  const auto device = late_device(3);
  Store store(*device, false);
  Rehearsal rehearsal(*device, store, {});
  const Region region{0, 0, 0};
  const Span span = device->allocate(Pool::device, 5000, "a");
  Rehearsal::write(span, region, 0);
  const Ticket ticket = store.put(region, span, [&] { rehearsal.free(span); });
  const Span back = store.get(region, ticket, rehearsal.allocate());  // without prefetch too
  rehearsal.check(back, region, 0);
  CHECK(rehearsal.checked_bytes() == 5000);
  CHECK(rehearsal.wrong_bytes() == 0);
  CHECK(store.get(region, ticket, rehearsal.allocate()).data == back.data);  // again: the same
  store.drop(region);
  rehearsal.free(back);
  CHECK(device->usage(Pool::device).now == 0);
}

TEST_CASE("prefetch of an unknown or a started region does nothing") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  int allocations = 0;
  std::vector<Span> spans;
  const Store::Allocate allocate = [&](std::int64_t bytes) {
    ++allocations;
    spans.push_back(device->allocate(Pool::device, bytes, "back"));
    return spans.back();
  };
  store.prefetch({0, 0, 7}, allocate);
  CHECK(allocations == 0);
  const Span span = device->allocate(Pool::device, 10, "a");
  store.put({0, 0, 0}, span, [] {});
  store.prefetch({0, 0, 0}, allocate);
  store.prefetch({0, 0, 0}, allocate);
  CHECK(allocations == 1);
  CHECK(store.totals().bytes_in == 10);
  store.drop({0, 0, 0});
  store.drop({0, 0, 0});  // and of an unknown region too
  device->release(span);
  device->release(spans.front());
}

TEST_CASE("a region can be dropped at any point of its way") {
  for (const bool retain : {false, true}) {
    for (int progress = 0; progress < 4; ++progress) {
      const auto device = late_device(static_cast<std::uint64_t>(progress));
      {
        Store store(*device, retain);
        Rehearsal rehearsal(*device, store, {});
        const Region region{1, 2, 3};
        std::vector<Span> back;
        const Store::Allocate allocate = [&](std::int64_t bytes) {
          return back.emplace_back(device->allocate(Pool::device, bytes, "back"));
        };
        const Span span = device->allocate(Pool::device, 100'000, "a");
        int releases = 0;
        store.put(region, span, [&] { ++releases; });
        if (progress > 0) store.end_layer({1, 2, 4});
        if (progress > 1) store.prefetch(region, allocate);
        if (progress > 2) store.get(region, 0, allocate);
        store.drop(region);
        CHECK(releases == 1);
        rehearsal.free(span);  // nothing may touch them now
        for (const Span& each : back) rehearsal.free(each);
        CHECK_THROWS_AS(store.get(region, 0, allocate), Error);
        CHECK((device->usage(Pool::host).now > 0) == retain);
      }
      CHECK(device->usage(Pool::host).now == 0);
    }
  }
}

TEST_CASE("the destructor ends and frees what nobody dropped") {
  const auto device = late_device(9);
  int releases = 0;
  const Span span = device->allocate(Pool::device, 200'000, "a");
  {
    Store store(*device, true);
    for (int layer = 0; layer < 5; ++layer) {
      store.put({0, 0, layer}, span, [&] { ++releases; });
    }
    store.end_layer({0, 0, 1});
  }
  CHECK(releases == 5);
  CHECK(device->usage(Pool::host).now == 0);
  device->release(span);
}

TEST_CASE("kept host slabs serve the next micro-batches without a new allocation") {
  const auto device = device::make_cpu_device();
  Store store(*device, true);
  Rehearsal rehearsal(*device, store,
                      {.layers = 3, .offloaded = 2, .piece_bytes = {5000, 5000, 70}});
  rehearsal.run(2, 1);
  const device::PoolUsage after_first = device->usage(Pool::host);
  CHECK(after_first.now == 2 * 2 * (5000 + 5000 + 70));
  for (int step = 0; step < 3; ++step) rehearsal.run(2, 1);
  CHECK(device->usage(Pool::host).allocations == after_first.allocations);
  CHECK(device->usage(Pool::host).peak == after_first.peak);
  CHECK(rehearsal.wrong_bytes() == 0);
}

// Sizes that follow the routing change every step; host memory must not grow with the steps (B107).
TEST_CASE("B107: kept slabs of changing sizes stay bounded") {
  const auto device = device::make_cpu_device();
  Store store(*device, true);
  std::int64_t peak_of_first_steps = 0;
  for (int step = 0; step < 60; ++step) {
    const std::int64_t bytes = 3000 + step * 911 % 2500;
    Rehearsal rehearsal(*device, store,
                        {.layers = 3, .offloaded = 3, .piece_bytes = {bytes, 6000 - bytes}});
    rehearsal.run(2, 1);
    CHECK(rehearsal.wrong_bytes() == 0);
    if (step == 9) peak_of_first_steps = device->usage(Pool::host).peak;
  }
  CHECK(device->usage(Pool::host).peak <= peak_of_first_steps * 3 / 2);
}

// Public case B099: only move what we moved.
TEST_CASE("B099: memory that is on the host already is refused") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  const Span host = device->allocate(Pool::host, 64, "host tensor");
  CHECK_THROWS_AS(store.put({}, host, [] {}), Error);
  device->release(host);
}

// Public case B102: a test that cannot fail hid a stale buffer.
TEST_CASE("B102: these tests see a single wrong byte") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  Rehearsal rehearsal(*device, store, {});
  const Region region{0, 0, 0};
  const Span span = device->allocate(Pool::device, 5000, "a");
  Rehearsal::write(span, region, 0);
  span.data[4999] ^= std::byte{1};
  const Ticket ticket = store.put(region, span, [] {});
  const Span back = store.get(region, ticket, rehearsal.allocate());
  rehearsal.check(back, region, 0);
  CHECK(rehearsal.wrong_bytes() == 1);
  store.drop(region);
  device->release(span);
  device->release(back);
}

TEST_CASE("regions of other micro-batches and chunks do not mix") {
  const auto device = late_device(5);
  {
    Store store(*device, true);
    Rehearsal rehearsal(*device, store, {.layers = 2, .offloaded = 2});
    for (int chunk = 0; chunk < 2; ++chunk) {
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        rehearsal.forward(micro_batch, chunk);
      }
    }
    for (const auto& [micro_batch, chunk] :
         {std::pair(1, 1), {0, 0}, {2, 1}, {1, 0}, {0, 1}, {2, 0}}) {
      rehearsal.backward(micro_batch, chunk);
    }
    CHECK(rehearsal.wrong_bytes() == 0);
  }
  CHECK(device->usage(Pool::device).now == 0);
}

TEST_CASE("storing into a region that is on its way back is refused") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  Rehearsal rehearsal(*device, store, {});
  const Span span = device->allocate(Pool::device, 10, "a");
  const Ticket ticket = store.put({}, span, [] {});
  const Span back = store.get({}, ticket, rehearsal.allocate());
  CHECK_THROWS_AS(store.put({}, span, [] {}), Error);
  CHECK_THROWS_AS(store.get({}, ticket + 1, rehearsal.allocate()), Error);
  store.drop({});
  store.put({}, span, [] {});
  store.drop({});
  device->release(span);
  device->release(back);
}
