// One ordered worker thread: queue, points, kept exceptions.
#include "device/stream_worker.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

namespace rr::device {

struct StreamWorker::Point::State {
  std::mutex mutex;
  std::condition_variable work, progress;
  std::deque<std::function<void()>> tasks;
  std::uint64_t pushed = 0, done = 0;
  bool stop = false;
  std::exception_ptr failure;  // the first one that nobody was told
  std::uint64_t failed_task = 0;

  void loop() {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return stop || !tasks.empty(); });
      if (tasks.empty()) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      std::exception_ptr thrown;
      try {
        task();
      } catch (...) {
        thrown = std::current_exception();
      }
      task = nullptr;  // what it holds is released before anyone sees it done
      lock.lock();
      if (thrown && !failure) {
        failure = std::move(thrown);
        failed_task = done;
      }
      ++done;
      progress.notify_all();
    }
  }
};

StreamWorker::StreamWorker(const char* thread_name) : state_(std::make_shared<Point::State>()) {
  thread_ = std::thread([state = state_] { state->loop(); });
  pthread_setname_np(thread_.native_handle(), thread_name);
}

StreamWorker::~StreamWorker() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_one();
  thread_.join();
}

void StreamWorker::push(std::function<void()> task) {
  {
    std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    ++state_->pushed;
  }
  state_->work.notify_one();
}

StreamWorker::Point StreamWorker::here() const {
  std::lock_guard lock(state_->mutex);
  return Point(state_, state_->pushed);
}

void StreamWorker::Point::wait(bool consume) const {
  std::unique_lock lock(state_->mutex);
  state_->progress.wait(lock, [&] { return state_->done >= after_; });
  if (!state_->failure || state_->failed_task >= after_) return;
  const std::exception_ptr failure = state_->failure;
  if (consume) state_->failure = nullptr;
  lock.unlock();
  std::rethrow_exception(failure);
}

}  // namespace rr::device
