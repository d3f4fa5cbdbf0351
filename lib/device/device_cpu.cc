// The CPU as a device: slabs of exact size, one worker thread per stream but compute, counted
// pools.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "base/text.h"
#include "device/device.h"
#include "device/event_state.h"
#include "device/pools.h"
#include "device/stream_worker.h"

namespace rr::device {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kMapFrom = 64 * 1024;             // smaller slabs come from the C heap
constexpr std::int64_t kHugePageFrom = 2 * 1024 * 1024;  // faster for the host's Adam

struct CpuEvent : Event::State {
  explicit CpuEvent(StreamWorker::Point at) : point(std::move(at)) {}
  StreamWorker::Point point;
};

// Null when the machine has no more memory.
std::byte* map_slab(std::int64_t bytes) {
  const std::size_t size = static_cast<std::size_t>(round_up(bytes, kPage));
  if (bytes < kMapFrom) {
    void* data = std::aligned_alloc(kPage, size);
    if (data) std::memset(data, 0, size);
    return static_cast<std::byte*>(data);
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (bytes >= kHugePageFrom) madvise(data, size, MADV_HUGEPAGE);  // a wish; refusal is no harm
  return static_cast<std::byte*>(data);
}

void unmap_slab(std::byte* data, std::int64_t bytes) noexcept {
  if (bytes < kMapFrom) {
    std::free(data);
  } else {
    munmap(data, static_cast<std::size_t>(round_up(bytes, kPage)));
  }
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : pools_(options.device_limit, options.host_limit) {}

  ~CpuDevice() override {
    try {
      CpuDevice::synchronize_all();
    } catch (const std::exception& error) {
      log_error(fmt::format("device: work failed and nobody waited for it: {}", error.what()));
    }
    for (const auto& [data, span] : slabs_) unmap_slab(data, span.bytes);
  }

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
  // Not for compute, which is the caller's own thread.
  StreamWorker& worker(Stream stream) { return workers_[static_cast<std::size_t>(stream) - 1]; }

  Pools pools_;
  std::mutex slabs_mutex_;
  std::unordered_map<std::byte*, Span> slabs_;
  std::atomic<std::int64_t> d2h_bytes_{0}, h2d_bytes_{0};
  std::array<StreamWorker, 3> workers_{StreamWorker("rr-d2h"), StreamWorker("rr-h2d"),
                                       StreamWorker("rr-comm")};
};

Span CpuDevice::allocate(Pool pool, std::int64_t bytes, std::string_view what) {
  RR_CHECK(bytes >= 0, fmt::format("{}: {} bytes", what, bytes));
  if (bytes == 0) return {nullptr, 0, pool};
  pools_.take(pool, bytes, what);
  std::byte* data = map_slab(bytes);
  if (!data) {
    const int error = errno;
    pools_.give_back(pool, bytes);
    throw Error(fmt::format("{}: the system has no {} ({} bytes) for the {} pool: {}", what,
                            format_bytes(bytes), format_count(bytes), name_of(pool),
                            std::strerror(error)));
  }
  const Span span{data, bytes, pool};
  std::lock_guard lock(slabs_mutex_);
  slabs_.emplace(data, span);
  return span;
}

void CpuDevice::release(Span span) noexcept {
  if (span.bytes == 0) return;
  {
    std::lock_guard lock(slabs_mutex_);
    const auto found = slabs_.find(span.data);
    if (found == slabs_.end() || found->second.bytes != span.bytes ||
        found->second.pool != span.pool) {
      // Going on would unmap memory of someone else.
      log_error(
          fmt::format("device: release of {} bytes that allocate did not hand out", span.bytes));
      std::abort();
    }
    slabs_.erase(found);
  }
  unmap_slab(span.data, span.bytes);
  pools_.give_back(span.pool, span.bytes);
}

void CpuDevice::copy(Stream stream, Span dst, Span src) {
  RR_CHECK(dst.bytes == src.bytes, fmt::format("copy of {} bytes into {}", src.bytes, dst.bytes));
  RR_CHECK(stream != Stream::comm, "copies go on d2h, h2d or compute");
  if (src.pool == Pool::device && dst.pool == Pool::host) d2h_bytes_ += src.bytes;
  if (src.pool == Pool::host && dst.pool == Pool::device) h2d_bytes_ += src.bytes;
  if (src.bytes == 0) return;
  run(stream, [dst, src] { std::memcpy(dst.data, src.data, static_cast<std::size_t>(src.bytes)); });
}

void CpuDevice::run(Stream stream, std::function<void()> work) {
  if (stream == Stream::compute) {
    work();
  } else {
    worker(stream).push(std::move(work));
  }
}

Event CpuDevice::record(Stream stream) {
  if (stream == Stream::compute) return {};  // the caller's own past
  return Event(std::make_shared<CpuEvent>(worker(stream).here()));
}

void CpuDevice::wait(Stream stream, const Event& event) {
  if (!event.state()) return;
  if (stream == Stream::compute) return synchronize(event);
  const StreamWorker::Point& point = static_cast<const CpuEvent&>(*event.state()).point;
  if (point.same_stream(worker(stream).here())) return;  // in order anyway
  // The failure stays with its own stream too: whoever waits there must not take the result.
  worker(stream).push([point] { point.wait(false); });
}

void CpuDevice::synchronize(const Event& event) {
  if (event.state()) static_cast<const CpuEvent&>(*event.state()).point.wait(true);
}

void CpuDevice::synchronize_all() {
  std::exception_ptr failure;
  for (StreamWorker& each : workers_) {
    try {
      each.here().wait(true);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace rr::device
