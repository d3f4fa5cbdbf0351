// The run's own account of itself.
#include "train/narrate.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <span>

#include "base/text.h"
#include "plan/planner.h"
#include "report/report.h"

namespace rr::train {
namespace {

constexpr int kMostMemoryLines = 64;

struct RankNumbers {
  std::int64_t rank, data_rank;
  std::int64_t device_now, device_peak, device_allocations;
  std::int64_t host_now, host_peak, host_allocations;
};

std::vector<RankNumbers> gather_numbers(const Runtime& runtime) {
  const device::PoolUsage on_device = runtime.device->usage(Pool::device);
  const device::PoolUsage on_host = runtime.device->usage(Pool::host);
  const RankNumbers own = {runtime.rank.rank, runtime.rank.at.data,  on_device.now,
                           on_device.peak,    on_device.allocations, on_host.now,
                           on_host.peak,      on_host.allocations};
  std::vector<RankNumbers> all(static_cast<std::size_t>(runtime.world().size()));
  runtime.world().all_gather(std::as_bytes(std::span(&own, 1)),
                             std::as_writable_bytes(std::span(all)));
  return all;
}

// Planned bytes of this rank in `pool`: exact items only, or all of them.
std::int64_t planned_bytes(const plan::RankPlan& rank, Pool pool, bool exact_only) {
  std::int64_t total = 0;
  for (const plan::MemoryItem& item : rank.memory)
    if (item.pool == pool && (item.exact || !exact_only)) total += item.bytes;
  return total;
}

}  // namespace

void print_line(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void print_start(const plan::Plan& plan, int rank) {
  if (rank != 0) return;
  std::string text;
  if (!plan.changes.empty()) text += "settings that differ from their defaults:\n" + plan.changes;
  text += plan::layout_text(plan);
  text += plan::memory_text(plan);
  text += plan::schedule_text(plan);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void print_memory(const Runtime& runtime, std::int64_t iterations) {
  const std::vector<RankNumbers> all = gather_numbers(runtime);
  if (!runtime.speaks()) return;
  for (const RankNumbers& numbers : all) {
    if (runtime.world().size() > kMostMemoryLines && numbers.data_rank != 0) continue;
    print_line(
        report::memory_line(static_cast<int>(numbers.rank), iterations,
                            {numbers.device_now, numbers.device_peak, numbers.device_allocations},
                            {numbers.host_now, numbers.host_peak, numbers.host_allocations}));
  }
}

void print_comparison(const Runtime& runtime, std::int64_t device_bytes_after_build) {
  const plan::RankPlan& rank = runtime.rank;
  const device::PoolUsage on_device = runtime.device->usage(Pool::device);
  const device::PoolUsage on_host = runtime.device->usage(Pool::host);
  const std::int64_t state = planned_bytes(rank, Pool::device, true);
  const std::int64_t everything = planned_bytes(rank, Pool::device, false);
  std::array<double, 6> most = {static_cast<double>(state),
                                static_cast<double>(device_bytes_after_build),
                                static_cast<double>(everything - state),
                                static_cast<double>(on_device.peak - device_bytes_after_build),
                                static_cast<double>(planned_bytes(rank, Pool::host, false)),
                                static_cast<double>(on_host.peak)};
  runtime.world().all_reduce_max(most);
  const offload::Totals moved = runtime.store ? runtime.store->totals() : offload::Totals{};
  if (!runtime.speaks()) return;
  const auto bytes = [&](int i) {
    return static_cast<std::int64_t>(most[static_cast<std::size_t>(i)]);
  };
  print_line(report::comparison_table(
      {{"weights, gradients, optimizer", "device", bytes(0), bytes(1), true},
       {"activations and temporaries", "device", bytes(2), bytes(3), false},
       {"offloaded state and staging", "host", bytes(4), bytes(5), runtime.store == nullptr}}));
  if (runtime.store)
    print_line(fmt::format("activation offload moved {} B out and {} B back; {:.1f} ms exposed",
                           format_count(moved.bytes_out), format_count(moved.bytes_in),
                           moved.exposed_ms));
}

}  // namespace rr::train
