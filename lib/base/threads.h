// A fixed pool of threads that block while idle (never spin), for host work such as the CPU Adam.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace rr {

// Cores this process may use: the affinity mask, cut by the cgroup's CPU quota; at least 1.
int usable_cores();

class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread too: 1 means everything runs on the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls work(begin, end) on disjoint ranges that cover [0, count), cut at multiples of `grain`;
  // returns when all are done. Which thread gets which range is unspecified. The first exception
  // is rethrown here after all ranges ended. Not reentrant.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& work);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rr
