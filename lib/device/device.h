// A device: counted memory pools, streams, events and asynchronous copies behind one door.
//
// The CPU device runs `compute` on the calling thread; d2h, h2d and comm are one worker thread
// each, which block while idle and work strictly in order. Work on different streams is ordered by
// events only. The variant that is not built throws, naming the build option.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/base.h"

namespace rr::device {

enum class Stream : std::uint8_t { compute, d2h, h2d, comm };

// A point in a stream's order. Copyable; default-constructed: already passed.
class Event {
 public:
  struct State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

struct PoolUsage {
  std::int64_t now = 0;          // live bytes
  std::int64_t peak = 0;         // since the last reset_peaks
  std::int64_t allocations = 0;  // since the start
};

// Traffic since the start, for the report.
struct CopyTotals {
  std::int64_t d2h_bytes = 0, h2d_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Exactly `bytes` bytes, 4096-byte aligned (memory of a GPU: 256), zeroed; counted in `pool`.
  // Throws Error with what, how much and how much is left when it does not fit. `what` names the
  // slab in messages.
  virtual Span allocate(Pool pool, std::int64_t bytes, std::string_view what) = 0;
  // `span` came from allocate; nothing pending may touch it.
  virtual void release(Span span) noexcept = 0;

  // Queues a copy of src to dst (same bytes) on d2h, h2d or compute. Both must stay alive and dst
  // unread, src unwritten until an event recorded afterwards on that stream has passed.
  virtual void copy(Stream stream, Span dst, Span src) = 0;
  // Queues host work in stream order (comm, d2h, h2d); on compute it runs at once. Work may throw:
  // the exception is kept and rethrown by the next synchronize or wait on an event after it.
  virtual void run(Stream stream, std::function<void()> work) = 0;

  virtual Event record(Stream stream) = 0;
  // Later work on `stream` starts after `event`. On the CPU's compute (a host thread) this blocks;
  // on a GPU it does not: host code that reads a result calls synchronize.
  virtual void wait(Stream stream, const Event& event) = 0;
  // Blocks the caller until `event` has passed; rethrows what failed before it on that stream.
  virtual void synchronize(const Event& event) = 0;
  // Everything queued on every stream is done.
  virtual void synchronize_all() = 0;

  virtual PoolUsage usage(Pool pool) const = 0;
  virtual void reset_peaks() = 0;
  virtual CopyTotals copies() const = 0;
  // Someone else's allocator (torch's) reports bytes it took (+) or gave back (-). Any thread.
  virtual void report(Pool pool, std::int64_t bytes) noexcept = 0;
};

struct CpuOptions {
  std::int64_t device_limit = 0;  // bytes; 0: no limit
  std::int64_t host_limit = 0;
};
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

// A GPU by its index among the visible ones. Throws Error in a build without CUDA.
std::unique_ptr<Device> make_cuda_device(int index);

// Wraps a device for tests: delays copies and work on a seeded schedule (reordering between
// streams, never within one), and fails what it is told to.
struct Faults {
  std::uint64_t seed = 0;
  int max_delay_us = 0;
  std::int64_t fail_copy = -1;        // index of the copy that throws; -1: none
  std::int64_t fail_allocation = -1;  // index of the allocation that throws
};
std::unique_ptr<Device> make_faulty_device(std::unique_ptr<Device> inner, const Faults& faults);

}  // namespace rr::device
