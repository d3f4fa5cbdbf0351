// Counted memory pools with limits.
#include "device/pools.h"

#include <fmt/format.h>

#include "base/text.h"

namespace rr::device {

Pools::Pools(std::int64_t device_limit, std::int64_t host_limit) {
  of(Pool::device).limit = device_limit;
  of(Pool::host).limit = host_limit;
}

void Pools::Counter::raise_peak(std::int64_t value) noexcept {
  std::int64_t seen = peak.load();
  while (seen < value && !peak.compare_exchange_weak(seen, value)) {
  }
}

void Pools::take(Pool pool, std::int64_t bytes, std::string_view what) {
  Counter& counter = of(pool);
  std::int64_t before = counter.now.load();
  do {
    if (counter.limit > 0 && bytes > counter.limit - before) {
      throw Error(fmt::format("{}: {} ({} bytes) do not fit into the {} pool: {} of {} are left",
                              what, format_bytes(bytes), format_count(bytes), name_of(pool),
                              format_bytes(std::max<std::int64_t>(0, counter.limit - before)),
                              format_bytes(counter.limit)));
    }
  } while (!counter.now.compare_exchange_weak(before, before + bytes));
  ++counter.allocations;
  counter.raise_peak(before + bytes);
}

void Pools::give_back(Pool pool, std::int64_t bytes) noexcept { of(pool).now -= bytes; }

void Pools::report(Pool pool, std::int64_t bytes) noexcept {
  Counter& counter = of(pool);
  const std::int64_t after = counter.now += bytes;
  if (bytes <= 0) return;
  ++counter.allocations;
  counter.raise_peak(after);
}

PoolUsage Pools::usage(Pool pool) const {
  const Counter& counter = of(pool);
  return {counter.now.load(), counter.peak.load(), counter.allocations.load()};
}

void Pools::reset_peaks() {
  for (Counter& counter : counters_) counter.peak = counter.now.load();
}

}  // namespace rr::device
