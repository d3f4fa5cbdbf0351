// A device that is late and fails on purpose: for tests of everything that must not rely on luck.
//
// Delays are queued on the stream itself before the copy or the work, so the order within a stream
// stays and the order between streams changes with the seed.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/random.h"
#include "device/device.h"

namespace rr::device {
namespace {

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::unique_ptr<Device> inner, const Faults& faults)
      : inner_(std::move(inner)), faults_(faults), random_(faults.seed, "device faults") {}

  Span allocate(Pool pool, std::int64_t bytes, std::string_view what) override {
    const std::int64_t index = allocations_++;
    if (index == faults_.fail_allocation) {
      throw Error(fmt::format("{}: injected failure of allocation {} ({} bytes, {} pool)", what,
                              index, bytes, name_of(pool)));
    }
    return inner_->allocate(pool, bytes, what);
  }
  void release(Span span) noexcept override { inner_->release(span); }

  void copy(Stream stream, Span dst, Span src) override {
    const std::int64_t index = copies_++;
    delay(stream);
    if (index != faults_.fail_copy) return inner_->copy(stream, dst, src);
    inner_->run(stream, [index, bytes = src.bytes] {
      throw Error(fmt::format("injected failure of copy {} ({} bytes)", index, bytes));
    });
  }
  void run(Stream stream, std::function<void()> work) override {
    delay(stream);
    inner_->run(stream, std::move(work));
  }

  Event record(Stream stream) override { return inner_->record(stream); }
  void wait(Stream stream, const Event& event) override { inner_->wait(stream, event); }
  void synchronize(const Event& event) override { inner_->synchronize(event); }
  void synchronize_all() override { inner_->synchronize_all(); }
  PoolUsage usage(Pool pool) const override { return inner_->usage(pool); }
  void reset_peaks() override { inner_->reset_peaks(); }
  CopyTotals copies() const override { return inner_->copies(); }
  void report(Pool pool, std::int64_t bytes) noexcept override { inner_->report(pool, bytes); }

 private:
  void delay(Stream stream) {
    if (faults_.max_delay_us <= 0) return;
    const std::uint32_t choice = random_.bits(delays_++);
    const std::chrono::microseconds pause(choice %
                                          static_cast<std::uint32_t>(faults_.max_delay_us + 1));
    inner_->run(stream, [pause] { std::this_thread::sleep_for(pause); });
  }

  std::unique_ptr<Device> inner_;
  Faults faults_;
  RandomStream random_;
  std::atomic<std::int64_t> copies_{0}, allocations_{0};
  std::atomic<std::uint64_t> delays_{0};
};

}  // namespace

std::unique_ptr<Device> make_faulty_device(std::unique_ptr<Device> inner, const Faults& faults) {
  return std::make_unique<FaultyDevice>(std::move(inner), faults);
}

}  // namespace rr::device
