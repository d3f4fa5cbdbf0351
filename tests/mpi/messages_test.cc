// Point-to-point messages, barriers, groups, and several threads at once.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>
#include <vector>

#include "device/device.h"
#include "mpi/world.h"

using namespace rr;
using namespace rr::comm;
using rr::test::all_ranks;
using rr::test::world;

namespace {

std::vector<std::byte> message(int from, int tag, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((static_cast<std::size_t>(from * 91 + tag * 13) + i) % 251);
  }
  return data;
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

TEST_CASE("large messages that cross do not deadlock, in whole and in pieces", "[np2][np4]") {
  const int peer = world().rank() ^ 1;
  const std::unique_ptr<World> small = make_mpi_world({.piece_bytes = 1000});
  const auto whole = world().make_group(all_ranks());
  const auto pieces = small->make_group(all_ranks());
  for (const auto& [group, bytes] : {std::pair(whole.get(), std::size_t{16'000'003}),
                                     std::pair(pieces.get(), std::size_t{800'007})}) {
    const std::vector<std::byte> out = message(world().rank(), 1, bytes);
    std::vector<std::byte> in(bytes);
    const auto pending = group->send(out, peer, 1);  // both send before either receives
    group->receive(in, peer, 1);
    pending->wait();
    CHECK(in == message(peer, 1, bytes));
  }
}

TEST_CASE("messages of one tag arrive in order, and tags are kept apart", "[np2][np3]") {
  const auto group = world().make_group(all_ranks());
  const int next = (world().rank() + 1) % world().size();
  const int last = (world().rank() + world().size() - 1) % world().size();
  std::vector<std::vector<std::byte>> out;
  std::vector<std::unique_ptr<Pending>> pending;
  for (int i = 0; i < 6; ++i)
    out.push_back(message(world().rank(), i, static_cast<std::size_t>(i) * 1000));
  for (int i = 0; i < 6; ++i)
    pending.push_back(group->send(out[static_cast<std::size_t>(i)], next, i % 2));
  for (int i : {1, 3, 0, 5, 2, 4}) {  // odd ones travel with tag 1, even ones with tag 0
    std::vector<std::byte> in(static_cast<std::size_t>(i) * 1000);
    group->receive(in, last, i % 2);
    CHECK(in == message(last, i, in.size()));
  }
  for (const auto& each : pending) each->wait();
}

TEST_CASE("dropping a pending send waits for it", "[np2]") {
  const auto group = world().make_group(all_ranks());
  std::vector<std::byte> data = message(7, 7, 3'000'000);
  if (world().rank() == 0) {
    group->send(data, 1, 0);  // the handle goes at once
    std::fill(data.begin(), data.end(), std::byte{0});
  } else {
    std::vector<std::byte> in(data.size());
    group->receive(in, 0, 0);
    CHECK(in == data);
  }
}

TEST_CASE("a message of another length than expected is an error with both lengths", "[np2]") {
  const auto group = world().make_group(all_ranks());
  std::vector<std::byte> data(60);
  if (world().rank() == 0) {
    group->send(data, 1, 0);
  } else {
    std::vector<std::byte> in(100);
    CHECK_THROWS_WITH(group->receive(in, 0, 0), Catch::Contains("60 bytes where 100"));
  }
  group->barrier();
}

TEST_CASE("nobody leaves a barrier before the last one came", "[np2][np3][np4][np8]") {
  const auto group = world().make_group(all_ranks());
  for (int late = 0; late < world().size(); ++late) {
    double arrived = 0;
    const auto now = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
          .count();
    };
    if (world().rank() == late) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      arrived = now();  // one node: one clock
    }
    group->barrier();
    const double left = now();
    group->all_reduce_max(std::span(&arrived, 1));
    CHECK(left >= arrived);
  }
}

TEST_CASE("two threads use two communicators at the same time", "[np2][np4]") {
  const auto main_group = world().make_group(all_ranks());
  const auto comm_group = world().make_group(all_ranks());
  const auto device = device::make_cpu_device();
  const int n = world().size(), me = world().rank();
  std::vector<std::vector<float>> sums;
  for (int i = 0; i < 40; ++i) {
    sums.emplace_back(static_cast<std::size_t>(5000 + 37 * i), static_cast<float>(me + i));
  }
  for (std::vector<float>& data : sums) {
    device->run(device::Stream::comm, [&] { comm_group->all_reduce_sum(std::span(data)); });
  }
  const device::Event reduced = device->record(device::Stream::comm);
  bool all_right = true;
  for (int i = 0; i < 40; ++i) {  // meanwhile, on the main thread
    const std::vector<std::byte> out = message(me, i, 20'000);
    std::vector<std::byte> in(out.size());
    const auto pending = main_group->send(out, (me + 1) % n, i);
    main_group->receive(in, (me + n - 1) % n, i);
    pending->wait();
    all_right = all_right && in == message((me + n - 1) % n, i, in.size());
  }
  device->synchronize(reduced);
  CHECK(all_right);
  for (int i = 0; i < 40; ++i) {
    const float expected = static_cast<float>(n * (n - 1) / 2 + n * i);
    const std::vector<float>& data = sums[static_cast<std::size_t>(i)];
    REQUIRE(data.front() == expected);
    REQUIRE(data.back() == expected);
  }
}

TEST_CASE("a rank that waits long leaves the core to others", "[np2][np4]") {
  const auto group = world().make_group(all_ranks());
  group->barrier();
  const double before = cpu_seconds();
  if (world().rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  group->barrier();
  // A spinning wait takes what it gets: 400 ms on a free core, 200 on a shared one.
  CHECK(cpu_seconds() - before < 0.1);
}

TEST_CASE("groups of neighbours, of strides and of one are independent", "[np4][np8]") {
  const int n = world().size(), me = world().rank();
  const auto pair = world().make_group({me & ~1, me | 1});
  std::vector<int> stride;
  for (int rank = me % 2; rank < n; rank += 2) stride.push_back(rank);
  const auto every_other = world().make_group(stride);
  const auto alone = world().make_group({me});
  CHECK(pair->size() == 2);
  CHECK(pair->rank() == me % 2);
  CHECK(every_other->size() == n / 2);
  CHECK(every_other->rank() == me / 2);
  CHECK(alone->size() == 1);

  double in_pair = me, in_stride = me, by_itself = me;
  pair->all_reduce_sum(std::span(&in_pair, 1));
  every_other->all_reduce_sum(std::span(&in_stride, 1));
  alone->all_reduce_sum(std::span(&by_itself, 1));
  CHECK(in_pair == 2 * (me & ~1) + 1);
  double expected = 0;
  for (const int rank : stride) expected += rank;
  CHECK(in_stride == expected);
  CHECK(by_itself == me);
}

TEST_CASE("the node's ranks are counted from the shared-memory split", "[np2][np4]") {
  CHECK(world().local_size() == world().size());  // these tests run on one machine
  CHECK(world().local_rank() == world().rank());
}
