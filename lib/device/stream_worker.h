// Private: one thread that runs queued tasks strictly in order and blocks while it has none.
//
// A task that throws does not stop the stream: the exception is kept, and given to the first caller
// that waits for a point after it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace rr::device {

class StreamWorker {
 public:
  explicit StreamWorker(const char* thread_name);
  ~StreamWorker();  // runs what is queued, then ends the thread
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;

  void push(std::function<void()> task);

  // A point in the stream: everything pushed before it. Outlives the worker.
  class Point {
   public:
    // Blocks until the point has passed. When a task before it failed: rethrows, and with
    // `consume` forgets the failure.
    void wait(bool consume) const;
    bool same_stream(const Point& other) const { return state_ == other.state_; }

   private:
    friend class StreamWorker;
    struct State;
    Point(std::shared_ptr<State> state, std::uint64_t after)
        : state_(std::move(state)), after_(after) {}
    std::shared_ptr<State> state_;
    std::uint64_t after_;  // number of tasks before the point
  };
  Point here() const;

 private:
  std::shared_ptr<Point::State> state_;
  std::thread thread_;
};

}  // namespace rr::device
