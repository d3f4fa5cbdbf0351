// One GPU as a device: streams, events, asynchronous copies, pinned slabs of exact size.
//
// `compute` is the default stream, which torch uses too; the other streams do not wait for it but
// by events. A failure of host work is told, as CUDA tells its own, by the next synchronize.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "device/device.h"
#include "device/event_state.h"
#include "device/pools.h"

namespace rr::device {
namespace {

void check_cuda(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return;
  throw Error(fmt::format("CUDA: {} failed: {} ({})", what, cudaGetErrorString(code),
                          cudaGetErrorName(code)));
}

// CUDA events are made once and used again.
class EventPool {
 public:
  ~EventPool() {
    for (const cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  cudaEvent_t take() {
    std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    } else {
      event = free_.back();
      free_.pop_back();
    }
    return event;
  }
  void give_back(cudaEvent_t event) {
    std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

struct CudaEvent : Event::State {
  explicit CudaEvent(std::shared_ptr<EventPool> from)
      : pool(std::move(from)), event(pool->take()) {}
  ~CudaEvent() override { pool->give_back(event); }
  std::shared_ptr<EventPool> pool;
  cudaEvent_t event;
};

// The first exception of host work that nobody was told.
class Failure {
 public:
  void keep(std::exception_ptr failure) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  void rethrow() {
    std::exception_ptr failure;
    {
      std::lock_guard lock(mutex_);
      failure = std::exchange(failure_, nullptr);
    }
    if (failure) std::rethrow_exception(failure);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
};

struct HostWork {
  std::function<void()> work;
  Failure* failure;
};

void run_host_work(void* argument) {
  const std::unique_ptr<HostWork> host(static_cast<HostWork*>(argument));
  try {
    host->work();
  } catch (...) {
    host->failure->keep(std::current_exception());
  }
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  Span allocate(Pool pool, std::int64_t bytes, std::string_view what) override;
  void release(Span span) noexcept override;
  void copy(Stream stream, Span dst, Span src) override;
  void run(Stream stream, std::function<void()> work) override;
  Event record(Stream stream) override;
  void wait(Stream stream, const Event& event) override;
  void synchronize(const Event& event) override;
  void synchronize_all() override;

  PoolUsage usage(Pool pool) const override { return pools_.usage(pool); }
  void reset_peaks() override { pools_.reset_peaks(); }
  CopyTotals copies() const override { return {d2h_bytes_.load(), h2d_bytes_.load()}; }
  void report(Pool pool, std::int64_t bytes) noexcept override { pools_.report(pool, bytes); }

 private:
  // The current device belongs to the thread; calls come from several.
  void use() const { check_cuda(cudaSetDevice(index_), "choosing the device"); }
  cudaStream_t stream_of(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  static cudaEvent_t event_of(const Event& event) {
    return static_cast<const CudaEvent&>(*event.state()).event;
  }

  int index_;
  Pools pools_{0, 0};
  std::array<cudaStream_t, 4> streams_{};  // [0]: the default stream
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  Failure failure_;
  std::mutex slabs_mutex_;
  std::unordered_map<std::byte*, Span> slabs_;
  std::atomic<std::int64_t> d2h_bytes_{0}, h2d_bytes_{0};
};

CudaDevice::CudaDevice(int index) : index_(index) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "looking for GPUs");
  if (index < 0 || index >= count) {
    throw Error(fmt::format("CUDA: there is no device {}; {} are visible", index, count));
  }
  use();
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check_cuda(cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking), "a stream");
  }
}

CudaDevice::~CudaDevice() {
  try {
    CudaDevice::synchronize_all();
  } catch (const std::exception& error) {
    log_error(fmt::format("device: work failed and nobody waited for it: {}", error.what()));
  }
  while (!slabs_.empty()) CudaDevice::release(slabs_.begin()->second);
  for (std::size_t i = 1; i < streams_.size(); ++i) cudaStreamDestroy(streams_[i]);
}

Span CudaDevice::allocate(Pool pool, std::int64_t bytes, std::string_view what) {
  RR_CHECK(bytes >= 0, fmt::format("{}: {} bytes", what, bytes));
  if (bytes == 0) return {nullptr, 0, pool};
  use();
  pools_.take(pool, bytes, what);
  const auto size = static_cast<std::size_t>(bytes);
  void* data = nullptr;
  cudaError_t code = pool == Pool::device ? cudaMalloc(&data, size)
                                          : cudaHostAlloc(&data, size, cudaHostAllocPortable);
  if (code == cudaSuccess && pool == Pool::device) code = cudaMemset(data, 0, size);
  if (code != cudaSuccess) {
    cudaGetLastError();  // an allocation that did not fit is no lasting error
    if (data) cudaFree(data);
    pools_.give_back(pool, bytes);
    throw Error(fmt::format("{}: the {} has no {} ({} bytes) left: {}", what,
                            pool == Pool::device ? "GPU" : "host's pinned memory",
                            format_bytes(bytes), format_count(bytes), cudaGetErrorString(code)));
  }
  if (pool == Pool::host) std::memset(data, 0, size);
  const Span span{static_cast<std::byte*>(data), bytes, pool};
  std::lock_guard lock(slabs_mutex_);
  slabs_.emplace(span.data, span);
  return span;
}

void CudaDevice::release(Span span) noexcept {
  if (span.bytes == 0) return;
  {
    std::lock_guard lock(slabs_mutex_);
    if (slabs_.erase(span.data) == 0) {
      log_error(
          fmt::format("device: release of {} bytes that allocate did not hand out", span.bytes));
      std::abort();
    }
  }
  cudaSetDevice(index_);
  if (span.pool == Pool::device) {
    cudaFree(span.data);
  } else {
    cudaFreeHost(span.data);
  }
  pools_.give_back(span.pool, span.bytes);
}

void CudaDevice::copy(Stream stream, Span dst, Span src) {
  RR_CHECK(dst.bytes == src.bytes, fmt::format("copy of {} bytes into {}", src.bytes, dst.bytes));
  RR_CHECK(stream != Stream::comm, "copies go on d2h, h2d or compute");
  if (src.pool == Pool::device && dst.pool == Pool::host) d2h_bytes_ += src.bytes;
  if (src.pool == Pool::host && dst.pool == Pool::device) h2d_bytes_ += src.bytes;
  if (src.bytes == 0) return;
  use();
  check_cuda(cudaMemcpyAsync(dst.data, src.data, static_cast<std::size_t>(src.bytes),
                             cudaMemcpyDefault, stream_of(stream)),
             "a copy");
}

void CudaDevice::run(Stream stream, std::function<void()> work) {
  if (stream == Stream::compute) return work();
  use();
  auto host = std::make_unique<HostWork>(HostWork{std::move(work), &failure_});
  check_cuda(cudaLaunchHostFunc(stream_of(stream), run_host_work, host.get()), "host work");
  host.release();  // NOLINT: run_host_work owns it now
}

Event CudaDevice::record(Stream stream) {
  use();
  auto state = std::make_shared<CudaEvent>(events_);
  check_cuda(cudaEventRecord(state->event, stream_of(stream)), "recording an event");
  return Event(std::move(state));
}

void CudaDevice::wait(Stream stream, const Event& event) {
  if (!event.state()) return;
  use();
  check_cuda(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "waiting for an event");
}

void CudaDevice::synchronize(const Event& event) {
  if (!event.state()) return;
  use();
  check_cuda(cudaEventSynchronize(event_of(event)), "work before an event");
  failure_.rethrow();
}

void CudaDevice::synchronize_all() {
  use();
  for (const cudaStream_t stream : streams_) {
    check_cuda(cudaStreamSynchronize(stream), "work on a stream");
  }
  failure_.rethrow();
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index) { return std::make_unique<CudaDevice>(index); }

}  // namespace rr::device
