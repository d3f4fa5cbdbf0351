// Private: counts the bytes of a device's pools and refuses what does not fit. Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "device/device.h"

namespace rr::device {

class Pools {
 public:
  // Limits in bytes; 0: none.
  Pools(std::int64_t device_limit, std::int64_t host_limit);

  // Takes `bytes` from `pool`. Throws Error with what, how much and how much is left.
  void take(Pool pool, std::int64_t bytes, std::string_view what);
  void give_back(Pool pool, std::int64_t bytes) noexcept;
  // Someone else's bytes: counted, never refused.
  void report(Pool pool, std::int64_t bytes) noexcept;

  PoolUsage usage(Pool pool) const;
  void reset_peaks();

 private:
  struct Counter {
    std::int64_t limit = 0;
    std::atomic<std::int64_t> now{0}, peak{0}, allocations{0};
    void raise_peak(std::int64_t value) noexcept;
  };
  Counter& of(Pool pool) { return counters_[static_cast<std::size_t>(pool)]; }
  const Counter& of(Pool pool) const { return counters_[static_cast<std::size_t>(pool)]; }

  std::array<Counter, 2> counters_;
};

}  // namespace rr::device
