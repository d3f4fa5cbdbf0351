// The thread pool covers every range once, hands errors on, and the core count obeys quotas.
#include "base/threads.h"

#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/base.h"
#include "base/cgroup.h"

namespace {

using rr::ThreadPool;

TEST_CASE("for_ranges covers every element once, cut at multiples of the grain") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const std::int64_t count : {1, 63, 64, 65, 1000, 4096}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      std::atomic<bool> cut_well = true;
      pool.for_ranges(count, 64, [&](std::int64_t begin, std::int64_t end) {
        if (begin % 64 != 0 || (end % 64 != 0 && end != count) || begin >= end) cut_well = false;
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      CHECK(cut_well);
      for (const auto& times : seen) REQUIRE(times == 1);
    }
  }
}

TEST_CASE("nothing is called for an empty range") {
  ThreadPool pool(2);
  pool.for_ranges(0, 1, [](std::int64_t, std::int64_t) { FAIL("called"); });
}

TEST_CASE("a pool of one thread runs on the caller") {
  ThreadPool pool(1);
  std::thread::id where;
  pool.for_ranges(10, 1, [&](std::int64_t, std::int64_t) { where = std::this_thread::get_id(); });
  CHECK(where == std::this_thread::get_id());
}

TEST_CASE("all threads of a pool can be at work at once") {
  ThreadPool pool(3);
  std::atomic<int> inside = 0;
  // Each waits for the others: with fewer than three threads this would never end.
  pool.for_ranges(3, 1, [&](std::int64_t, std::int64_t) {
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });
  CHECK(inside == 3);
}

TEST_CASE("an exception is rethrown after all ranges ended, and the pool goes on working") {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ended = 0;
    CHECK_THROWS_WITH(pool.for_ranges(16, 1,
                                      [&](std::int64_t begin, std::int64_t) {
                                        ++ended;
                                        if (begin % 5 == 0) throw std::runtime_error("range broke");
                                      }),
                      "range broke");
    CHECK(ended == 16);
  }
  std::atomic<std::int64_t> sum = 0;
  pool.for_ranges(100, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  CHECK(sum == 4950);
}

TEST_CASE("a nested call is refused instead of hanging") {
  ThreadPool pool(2);
  CHECK_THROWS_AS(pool.for_ranges(8, 1,
                                  [&](std::int64_t, std::int64_t) {
                                    pool.for_ranges(8, 1, [](std::int64_t, std::int64_t) {});
                                  }),
                  rr::Error);
}

TEST_CASE("a worker's nested call is refused even when the caller waits for it alone") {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> worker_has_one = false;
  const auto work = [&](std::int64_t, std::int64_t) {
    if (std::this_thread::get_id() == caller) {
      while (!worker_has_one) std::this_thread::yield();
      return;
    }
    worker_has_one = true;
    // Time for the caller to find no range left; without it the case proves less, never fails.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pool.for_ranges(8, 1, [](std::int64_t, std::int64_t) {});
  };
  CHECK_THROWS_AS(pool.for_ranges(2, 1, work), rr::Error);
}

TEST_CASE("a pool without threads is refused") { CHECK_THROWS_AS(ThreadPool(0), rr::Error); }

TEST_CASE("usable_cores is at least 1 and at most the affinity mask") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const int all = rr::usable_cores();
  CHECK(all >= 1);
  CHECK(all <= CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &before) && CPU_COUNT(&one) == 0) CPU_SET(core, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(rr::usable_cores() == 1);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

// A made-up /sys/fs/cgroup.
struct Groups {
  std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("rr_cgroup_" + std::to_string(getpid()));
  ~Groups() { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  std::optional<double> cores(const std::string& membership) {
    return rr::cgroup_cores(membership, root.string());
  }
};

TEST_CASE("the CPU quota of a version 2 group is the smallest on the way to the root") {
  Groups groups;
  groups.write("cpu.max", "max 100000\n");
  groups.write("job/cpu.max", "150000 100000\n");
  groups.write("job/step/cpu.max", "400000 100000\n");
  CHECK(groups.cores("0::/job/step\n") == 1.5);
  CHECK(groups.cores("0::/job\n") == 1.5);
  CHECK(groups.cores("0::/\n") == std::nullopt);
  CHECK(groups.cores("0::/elsewhere\n") == std::nullopt);
}

TEST_CASE("a container's quota is found at the mount's root when its own path is hidden") {
  Groups groups;
  groups.write("cpu.max", "200000 100000\n");
  CHECK(groups.cores("0::/docker/0123abc\n") == 2.0);
  CHECK(groups.cores("0::/../outside\n") == 2.0);
}

TEST_CASE("the CPU quota of a version 1 group is read from its controller's folder") {
  Groups groups;
  groups.write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  groups.write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  groups.write("cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n");
  groups.write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  const std::string head = "12:memory:/job\n11:cpuset:/job\n";
  CHECK(groups.cores(head + "4:cpu,cpuacct:/job\n") == 0.5);
  CHECK(groups.cores(head + "4:cpu,cpuacct:/\n") == std::nullopt);
  CHECK(groups.cores(head) == std::nullopt);
}

TEST_CASE("B104: the memory limit of a group is the smallest on the way to the root") {
  Groups groups;
  groups.write("memory.max", "max\n");
  groups.write("job/memory.max", "8000000000\n");
  groups.write("job/step/memory.max", "9000000000\n");
  const std::string root = groups.root.string();
  CHECK(rr::cgroup_memory("0::/job/step\n", root) == 8000000000);
  CHECK(rr::cgroup_memory("0::/\n", root) == std::nullopt);
  groups.write("memory/job/memory.limit_in_bytes", "7000000000\n");
  CHECK(rr::cgroup_memory("9:memory:/job\n4:cpu:/job\n", root) == 7000000000);
  CHECK(rr::cgroup_memory("4:cpu:/job\n", root) == std::nullopt);
}

TEST_CASE("odd or missing quota files mean no limit") {
  Groups groups;
  groups.write("cpu.max", "garbage");
  CHECK(groups.cores("0::/a\nnot a line\n\n") == std::nullopt);
  CHECK(groups.cores("") == std::nullopt);
}

}  // namespace
