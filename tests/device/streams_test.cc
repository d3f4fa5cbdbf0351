// Streams, events, copies and kept exceptions of the CPU device, and the same under faults.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"

using namespace rr;
using namespace rr::device;

namespace {

constexpr Stream kWorkers[] = {Stream::d2h, Stream::h2d, Stream::comm};

// A device whose streams run at seeded, different speeds.
std::unique_ptr<Device> late_device(std::uint64_t seed) {
  return make_faulty_device(make_cpu_device(), {.seed = seed, .max_delay_us = 300});
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("work on one stream runs in the order it was queued, on one thread") {
  for (const Stream stream : kWorkers) {
    auto device = make_cpu_device();
    std::vector<int> order;
    std::vector<std::thread::id> threads;
    for (int i = 0; i < 200; ++i) {
      device->run(stream, [&, i] {
        order.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
    device->synchronize(device->record(stream));
    REQUIRE(order.size() == 200);
    for (int i = 0; i < 200; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
    for (const std::thread::id id : threads) CHECK(id == threads.front());
    CHECK(threads.front() != std::this_thread::get_id());
  }
}

TEST_CASE("compute work runs at once on the caller and throws there") {
  auto device = make_cpu_device();
  std::thread::id where;
  device->run(Stream::compute, [&] { where = std::this_thread::get_id(); });
  CHECK(where == std::this_thread::get_id());
  CHECK_THROWS_WITH(device->run(Stream::compute, [] { throw Error("at once"); }), "at once");
  CHECK_NOTHROW(device->synchronize_all());
}

TEST_CASE("streams run at the same time: one that waits does not hold another") {
  auto device = make_cpu_device();
  std::promise<void> gate;
  device->run(Stream::d2h, [&] { gate.get_future().wait(); });
  int done = 0;
  device->run(Stream::h2d, [&] { done = 1; });
  device->synchronize(device->record(Stream::h2d));  // would never return on a shared thread
  CHECK(done == 1);
  gate.set_value();
  device->synchronize_all();
}

TEST_CASE("an event holds later work of another stream back until it has passed") {
  auto device = make_cpu_device();
  std::atomic<bool> first_done{false};
  bool seen = false;
  device->run(Stream::d2h, [&] {
    sleep_ms(20);
    first_done = true;
  });
  device->wait(Stream::h2d, device->record(Stream::d2h));
  device->run(Stream::h2d, [&] { seen = first_done; });
  device->synchronize(device->record(Stream::h2d));
  CHECK(seen);
}

TEST_CASE("waiting on compute blocks the caller, and only for what was queued before the event") {
  auto device = make_cpu_device();
  std::atomic<int> done{0};
  std::promise<void> gate;
  device->run(Stream::comm, [&] {
    sleep_ms(10);
    done = 1;
  });
  const Event event = device->record(Stream::comm);
  device->run(Stream::comm, [&] { gate.get_future().wait(); });
  device->wait(Stream::compute, event);
  CHECK(done == 1);
  gate.set_value();
  device->synchronize_all();
}

TEST_CASE("an event of no stream, of compute and of its own stream have nothing to wait for") {
  auto device = make_cpu_device();
  device->synchronize(Event{});
  device->wait(Stream::d2h, Event{});
  device->synchronize(device->record(Stream::compute));
  device->run(Stream::d2h, [] {});
  device->wait(Stream::d2h, device->record(Stream::d2h));
  device->synchronize_all();
}

TEST_CASE("copies move the bytes, count their direction and refuse different sizes") {
  auto device = make_cpu_device();
  const Span a = device->allocate(Pool::device, 5000, "a");
  const Span b = device->allocate(Pool::host, 5000, "b");
  const Span c = device->allocate(Pool::device, 5000, "c");
  for (int i = 0; i < 5000; ++i) a.data[i] = static_cast<std::byte>(i % 251);
  device->copy(Stream::d2h, b, a);
  device->wait(Stream::h2d, device->record(Stream::d2h));
  device->copy(Stream::h2d, c.slice(1, 4999), b.slice(1, 4999));
  device->copy(Stream::h2d, c.slice(0, 0), b.slice(0, 0));
  device->synchronize(device->record(Stream::h2d));
  CHECK(c.data[0] == std::byte{0});
  CHECK(std::equal(a.data + 1, a.data + 5000, c.data + 1));
  device->copy(Stream::compute, c, a);  // on the same pool: no traffic
  CHECK(c.data[250] == a.data[250]);
  CHECK(device->copies().d2h_bytes == 5000);
  CHECK(device->copies().h2d_bytes == 4999);
  CHECK_THROWS_AS(device->copy(Stream::d2h, b, a.slice(0, 10)), Error);
  for (const Span& span : {a, b, c}) device->release(span);
}

TEST_CASE("a failure on a stream is told once to whoever waits for a point after it") {
  auto device = make_cpu_device();
  const Event before = device->record(Stream::comm);
  device->run(Stream::comm, [] { throw Error("first"); });
  int later = 0;
  device->run(Stream::comm, [&] { later = 1; });
  device->run(Stream::comm, [] { throw Error("second"); });
  const Event after = device->record(Stream::comm);
  CHECK_THROWS_WITH(device->synchronize(after), "first");
  CHECK(later == 1);  // the stream went on
  CHECK_NOTHROW(device->synchronize(before));
  CHECK_NOTHROW(device->synchronize(after));
}

TEST_CASE("a point before a failure passes without it") {
  auto device = make_cpu_device();
  device->run(Stream::d2h, [] {});
  const Event before = device->record(Stream::d2h);
  device->run(Stream::d2h, [] { throw Error("later"); });
  const Event after = device->record(Stream::d2h);
  sleep_ms(10);
  CHECK_NOTHROW(device->wait(Stream::compute, before));
  CHECK_THROWS_WITH(device->wait(Stream::compute, after), "later");
}

TEST_CASE("a failure reaches the streams that waited for its event") {
  auto device = make_cpu_device();
  device->run(Stream::d2h, [] { throw Error("the copy failed"); });
  device->wait(Stream::h2d, device->record(Stream::d2h));
  device->run(Stream::h2d, [] {});
  CHECK_THROWS_WITH(device->synchronize(device->record(Stream::h2d)), "the copy failed");
  CHECK_THROWS_WITH(device->synchronize(device->record(Stream::d2h)), "the copy failed");
  CHECK_NOTHROW(device->synchronize_all());
}

TEST_CASE("synchronize_all waits for every stream even when one failed") {
  auto device = make_cpu_device();
  std::atomic<int> done{0};
  device->run(Stream::d2h, [] { throw Error("d2h failed"); });
  device->run(Stream::comm, [&] {
    sleep_ms(20);
    done = 1;
  });
  CHECK_THROWS_WITH(device->synchronize_all(), "d2h failed");
  CHECK(done == 1);
}

TEST_CASE(
    "the destructor finishes queued work, and a failure nobody asked for does not end the "
    "program") {
  std::atomic<int> done{0};
  {
    auto device = make_cpu_device();
    device->run(Stream::h2d, [] { throw Error("unheard"); });
    for (int i = 0; i < 50; ++i) device->run(Stream::h2d, [&] { ++done; });
  }
  CHECK(done == 50);
}

TEST_CASE("an event outlives its device") {
  Event event;
  {
    auto device = make_cpu_device();
    device->run(Stream::comm, [] {});
    event = device->record(Stream::comm);
  }
  CHECK(event.state() != nullptr);
}

TEST_CASE("what work holds is released before its event passes") {
  auto device = make_cpu_device();
  auto held = std::make_shared<int>(1);
  device->run(Stream::comm, [copy = held] {});
  device->synchronize(device->record(Stream::comm));
  CHECK(held.use_count() == 1);
}

TEST_CASE("late streams keep their order and that of events") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto device = late_device(seed);
    // A baton goes round the streams; each holder may only run when the one before is done.
    std::vector<int> order;
    Event event;
    for (int i = 0; i < 12; ++i) {
      const Stream stream = kWorkers[(i + static_cast<int>(seed)) % 3];
      device->wait(stream, event);
      device->run(stream, [&order, i] { order.push_back(i); });
      event = device->record(stream);
    }
    device->synchronize(event);
    REQUIRE(order.size() == 12);
    for (int i = 0; i < 12; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("late streams really change the order between streams") {
  bool d2h_first = false, h2d_first = false;
  for (std::uint64_t seed = 0; seed < 40 && !(d2h_first && h2d_first); ++seed) {
    auto device = make_faulty_device(make_cpu_device(), {.seed = seed, .max_delay_us = 2000});
    std::atomic<int> next{0};
    int d2h = -1, h2d = -1;
    device->run(Stream::d2h, [&] { d2h = next++; });
    device->run(Stream::h2d, [&] { h2d = next++; });
    device->synchronize_all();
    (d2h < h2d ? d2h_first : h2d_first) = true;
  }
  CHECK(d2h_first);
  CHECK(h2d_first);
}

TEST_CASE("the chosen copy and the chosen allocation fail, the others work") {
  auto device = make_faulty_device(make_cpu_device(), {.fail_copy = 1, .fail_allocation = 2});
  const Span a = device->allocate(Pool::device, 8, "a");
  const Span b = device->allocate(Pool::host, 8, "b");
  CHECK_THROWS_WITH(device->allocate(Pool::host, 8, "c"), Catch::Contains("allocation 2"));
  CHECK(device->usage(Pool::host).now == 8);
  a.as<int>()[0] = 7;
  device->copy(Stream::d2h, b, a);
  CHECK_NOTHROW(device->synchronize(device->record(Stream::d2h)));
  CHECK(b.as<int>()[0] == 7);
  a.as<int>()[0] = 8;
  device->copy(Stream::d2h, b, a);
  CHECK_THROWS_WITH(device->synchronize(device->record(Stream::d2h)), Catch::Contains("copy 1"));
  CHECK(b.as<int>()[0] == 7);
  device->copy(Stream::d2h, b, a);
  CHECK_NOTHROW(device->synchronize_all());
  CHECK(b.as<int>()[0] == 8);
  device->release(a);
  device->release(b);
}
