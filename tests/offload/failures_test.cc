// The activation store when copies and allocations fail: an error at the next wait, and no leak.
#include <catch2/catch.hpp>
#include <vector>

#include "offload/rehearsal.h"

using namespace rr;
using namespace rr::offload;
using rr::test::Rehearsal;

namespace {

std::unique_ptr<device::Device> failing_device(std::int64_t copy, std::int64_t allocation = -1) {
  return device::make_faulty_device(
      device::make_cpu_device(),
      {.seed = 1, .max_delay_us = 100, .fail_copy = copy, .fail_allocation = allocation});
}

}  // namespace

TEST_CASE("a copy out that fails is told at the next boundary, and every storage is released") {
  const auto device = failing_device(1);
  const Span span = device->allocate(Pool::device, 1000, "a");
  {
    Store store(*device, false);
    Rehearsal rehearsal(*device, store, {});
    int releases = 0;
    for (int i = 0; i < 3; ++i) store.put({0, 0, 0}, span, [&] { ++releases; });
    CHECK_NOTHROW(store.end_layer({0, 0, 0}));
    CHECK_THROWS_WITH(store.end_layer({0, 0, 1}), Catch::Contains("copy 1"));
    CHECK(releases == 3);
    CHECK_NOTHROW(store.end_layer({0, 0, 2}));  // told once
    // The lost piece stays lost; nobody gets garbage for it.
    CHECK_THROWS_WITH(store.get({0, 0, 0}, 1, rehearsal.allocate()),
                      Catch::Contains("never reached"));
    store.drop({0, 0, 0});
  }
  CHECK(device->usage(Pool::host).now == 0);
}

TEST_CASE("a copy out that fails is told by get when no boundary came before") {
  const auto device = failing_device(0);
  Store store(*device, false);
  Rehearsal rehearsal(*device, store, {});
  const Span span = device->allocate(Pool::device, 1000, "a");
  int releases = 0;
  store.put({}, span, [&] { ++releases; });
  CHECK_THROWS_WITH(store.get({}, 0, rehearsal.allocate()), Catch::Contains("copy 0"));
  CHECK(releases == 1);
  CHECK_NOTHROW(store.drop({}));
  CHECK(device->usage(Pool::host).now == 0);
  device->release(span);
}

TEST_CASE("a copy back that fails is told by get, every time") {
  const auto device = failing_device(1);
  Store store(*device, true);
  Span back;
  const Store::Allocate allocate = [&](std::int64_t bytes) {
    return back = device->allocate(Pool::device, bytes, "back");
  };
  const Span span = device->allocate(Pool::device, 1000, "a");
  store.put({}, span, [] {});
  store.end_layer({0, 0, 1});
  CHECK_NOTHROW(store.prefetch({}, allocate));
  CHECK_THROWS_WITH(store.get({}, 0, allocate), Catch::Contains("copy 1"));
  CHECK_THROWS_WITH(store.get({}, 0, allocate), Catch::Contains("did not come back"));
  CHECK_NOTHROW(store.drop({}));
  device->release(back);
  device->release(span);
}

TEST_CASE("a failure that nobody asked for is told by drop, after everything is free") {
  const auto device = failing_device(0);
  Store store(*device, false);
  const Span span = device->allocate(Pool::device, 1000, "a");
  int releases = 0;
  store.put({}, span, [&] { ++releases; });
  CHECK_THROWS_WITH(store.drop({}), Catch::Contains("copy 0"));
  CHECK(releases == 1);
  CHECK(device->usage(Pool::host).now == 0);
  CHECK_NOTHROW(store.drop({}));
  device->release(span);
}

TEST_CASE("the destructor survives failures") {
  const auto device = failing_device(0);
  const Span span = device->allocate(Pool::device, 1000, "a");
  int releases = 0;
  {
    Store store(*device, false);
    store.put({}, span, [&] { ++releases; });
    store.put({}, span, [&] { ++releases; });
  }
  CHECK(releases == 2);
  CHECK(device->usage(Pool::host).now == 0);
  device->release(span);
}

TEST_CASE("a full host pool is told by put, which then stored nothing") {
  const auto device = device::make_cpu_device({.device_limit = 0, .host_limit = 1500});
  Store store(*device, false);
  const Span span = device->allocate(Pool::device, 1000, "a");
  int releases = 0;
  store.put({0, 0, 0}, span, [&] { ++releases; });
  CHECK_THROWS_WITH(store.put({0, 0, 1}, span, [&] { ++releases; }),
                    Catch::Contains("activation slab") && Catch::Contains("host pool"));
  store.end_layer({0, 0, 2});
  CHECK(releases == 1);
  CHECK(store.totals().bytes_out == 1000);
  store.drop({0, 0, 0});
  CHECK_NOTHROW(store.put({0, 0, 1}, span, [&] { ++releases; }));
  store.drop({0, 0, 1});
  device->release(span);
}

TEST_CASE("device memory that runs out on the way back leaves the region as it was") {
  const auto device = device::make_cpu_device({.device_limit = 3000, .host_limit = 0});
  Store store(*device, false);
  Rehearsal rehearsal(*device, store, {});
  const Region region{};
  for (std::size_t i = 0; i < 2; ++i) {
    const Span span = device->allocate(Pool::device, 1000, "a");
    Rehearsal::write(span, region, i);
    store.put(region, span, [&, span] { rehearsal.free(span); });
  }
  store.end_layer({0, 0, 1});
  const Span other = device->allocate(Pool::device, 1500, "other");
  std::vector<Span> back;
  const Store::Allocate allocate = [&](std::int64_t bytes) {
    return back.emplace_back(device->allocate(Pool::device, bytes, "reloaded activation"));
  };
  CHECK_THROWS_WITH(store.prefetch(region, allocate), Catch::Contains("reloaded activation"));
  device->release(other);
  for (Ticket ticket = 0; ticket < 2; ++ticket) {  // now there is room: the rest follows
    rehearsal.check(store.get(region, ticket, allocate), region, static_cast<std::size_t>(ticket));
  }
  CHECK(back.size() == 2);
  CHECK(rehearsal.wrong_bytes() == 0);
  CHECK(rehearsal.checked_bytes() == 2000);
  store.drop(region);
  for (const Span& span : back) device->release(span);
  CHECK(device->usage(Pool::device).now == 0);
}

TEST_CASE("an exception from a release callback is told, and the others are still released") {
  const auto device = device::make_cpu_device();
  Store store(*device, false);
  const Span span = device->allocate(Pool::device, 1000, "a");
  int releases = 0;
  store.put({}, span, [&]() -> void {
    ++releases;
    throw Error("release failed");
  });
  store.put({}, span, [&] { ++releases; });
  CHECK_THROWS_WITH(store.end_layer({0, 0, 1}), "release failed");
  CHECK(releases == 2);
  store.drop({});
  device->release(span);
}
