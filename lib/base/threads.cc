// A pool whose workers sleep on a condition variable; ranges are claimed from one atomic counter.
#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/base.h"
#include "base/cgroup.h"

namespace rr {
namespace {

int affinity_cores() {
  // The kernel refuses a mask shorter than its own; 2^16 cores are enough for the years to come.
  for (int capacity = 1024; capacity <= 65536; capacity *= 4) {
    cpu_set_t* mask = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool read = sched_getaffinity(0, bytes, mask) == 0;
    const int cores = read ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (read) return cores;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int usable_cores() {
  int cores = affinity_cores();
  if (const auto quota = cgroup_cores(own_cgroup(), "/sys/fs/cgroup")) {
    if (*quota < cores) cores = static_cast<int>(std::ceil(*quota));
  }
  return std::max(1, cores);
}

// One call of for_ranges.
struct Job {
  std::int64_t count = 0, grain = 1, units = 0, chunks = 0;
  const std::function<void(std::int64_t, std::int64_t)>* work = nullptr;
  std::atomic<std::int64_t> next = 0;
  std::mutex failure_mutex;
  std::exception_ptr failure;

  void run() {
    for (std::int64_t i = next++; i < chunks; i = next++) {
      const std::int64_t begin = units * i / chunks * grain;
      const std::int64_t end = std::min(count, units * (i + 1) / chunks * grain);
      try {
        (*work)(begin, end);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  }
};

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  Job* job = nullptr;            // guarded by mutex, as are the next three
  std::uint64_t generation = 0;  // counts jobs, so that no worker runs one twice
  int busy = 0;
  bool stop = false;

  void serve() {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      if (job == nullptr) continue;
      Job& current = *job;
      ++busy;
      lock.unlock();
      current.run();
      lock.lock();
      if (--busy == 0) idle.notify_all();
    }
  }

  void shut_down() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  RR_CHECK(threads >= 1, "a pool needs the calling thread at least");
  try {
    for (int i = 1; i < threads; ++i) state_->workers.emplace_back([this] { state_->serve(); });
  } catch (...) {  // the system has no thread left: those that started must end
    state_->shut_down();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->shut_down(); }

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::for_ranges(std::int64_t count, std::int64_t grain,
                            const std::function<void(std::int64_t, std::int64_t)>& work) {
  RR_CHECK(grain >= 1, "ranges are cut at multiples of a positive grain");
  if (count <= 0) return;
  Job job;
  job.count = count;
  job.grain = grain;
  job.units = ceil_div(count, grain);
  // More ranges than threads, so that a thread that lost its core does not hold up the others.
  job.chunks = std::min<std::int64_t>(job.units, size() == 1 ? 1 : 4 * size());
  job.work = &work;
  if (job.chunks > 1) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    // The job is gone as soon as its last range was claimed, workers may still be in theirs.
    RR_CHECK(state_->job == nullptr && state_->busy == 0,
             "for_ranges called from within for_ranges");
    state_->job = &job;
    ++state_->generation;
  }
  if (job.chunks > 1) state_->wake.notify_all();
  job.run();
  if (job.chunks > 1) {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->job = nullptr;  // a worker that wakes late finds nothing to do
    state_->idle.wait(lock, [&] { return state_->busy == 0; });
  }
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace rr
