// Private: AdamW on one shard range, on the device or on the host with its copies.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <vector>

#include "optim/optim.h"
#include "optim/shard.h"

namespace rr::optim {

// The numbers of one step, [weight decay applies].
using StepArguments = std::array<AdamArguments, 2>;

// Elements [begin, end) of `range`, where it lives: from its gradient (host: the staged one) into
// its weight (host: the staged one).
void adam_on(const Range& range, std::int64_t begin, std::int64_t end,
             const StepArguments& arguments, ThreadPool& threads);

// Time that work on one stream took, without the waits before it.
class StreamClock {
 public:
  StreamClock(device::Device& device, device::Stream stream) : device_(device), stream_(stream) {}
  // What is queued between start() and stop() is counted.
  void start();
  void stop();
  // Since the last call; of work that has passed.
  double take_ms() { return static_cast<double>(nanoseconds_.exchange(0)) * 1e-6; }

 private:
  using Clock = std::chrono::steady_clock;
  device::Device& device_;
  device::Stream stream_;
  Clock::time_point started_;  // touched by the stream only
  std::atomic<std::int64_t> nanoseconds_{0};
};

// Steps the host ranges, chunk by chunk. With overlap a chunk's gradients are copied as soon as
// they are reduced, and its weights while the next one is stepped; without, one thing happens at a
// time.
class HostEngine {
 public:
  HostEngine(const Environment& environment, const std::vector<Range>& ranges);

  // The gradients of this bucket are final once `reduced` passed: with overlap, queues their
  // copies.
  void gradients_reduced(int buffer, int bucket, const device::Event& reduced);
  // Gradients of ranges[range] in, AdamW, weights out. Without overlap the bucket must be reduced.
  // Returns the event of the last copy out.
  device::Event step(std::size_t range, const StepArguments& arguments);
  // Staged weights of earlier steps have left, so that they may be overwritten.
  void wait_for_weights();
  // No copy reads a gradient any more.
  void wait_for_gradients();
  // Adds the times since the last call.
  void report(StepResult& result);

 private:
  struct Chunk {
    std::size_t range;
    std::int64_t begin, end;  // elements from the range's begin
    device::Event arrived;    // its gradients are on the host
  };
  void copy_gradients(Chunk& chunk);
  void copy_weights(const Chunk& chunk);

  device::Device& device_;
  ThreadPool& threads_;
  const std::vector<Range>& ranges_;
  bool overlap_;
  std::vector<Chunk> chunks_;  // in the order of ranges
  device::Event left_;         // the last staged weight
  StreamClock d2h_, h2d_;
  double adam_ms_ = 0;
};

}  // namespace rr::optim
