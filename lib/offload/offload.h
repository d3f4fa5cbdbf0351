// The activation store: saved bytes leave the device after the forward of a layer and come back
// one layer ahead in backward. Knows no model and no tensor.
//
// Keys are (micro-batch, chunk, layer, tensor), so any schedule works. Device storage is released
// on the compute thread at layer boundaries only, so measured peaks repeat exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/base.h"
#include "device/device.h"

namespace rr::offload {

struct Region {
  int micro_batch = 0, chunk = 0, layer = 0;
  auto operator<=>(const Region&) const = default;
};

// A stored piece of a region, in the order of put(); valid until the region is dropped.
using Ticket = int;

struct Totals {
  std::int64_t bytes_out = 0, bytes_in = 0;  // since the start
  std::int64_t host_peak = 0;                // bytes of slabs in use at once
  double exposed_ms = 0;                     // compute thread waiting for copies
};

class Store {
 public:
  // `retain_buffers`: host slabs are kept for the next micro-batch instead of given back. All calls
  // come from one thread at a time, the compute thread; `device` outlives the store.
  Store(device::Device& device, bool retain_buffers);
  // Ends everything pending and frees what was not dropped; failures are logged.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Forward. Queues `bytes` (device memory) for the way out. `release` gives the device storage
  // back; it is called once, on this thread, after the copy has ended (even if it failed): at a
  // boundary, or when the region is brought back or dropped before one. Throws Error when the host
  // pool is full; then nothing was stored and `release` is not called.
  Ticket put(const Region& region, Span bytes, std::function<void()> release);
  // Forward, layer boundary, also of a layer that put nothing: releases everything of regions other
  // than `region`, blocking for their copies. What is released depends on the calls only, never on
  // how fast copies were; at most one layer's copies stay in flight. A copy that failed is rethrown
  // here, after all releases.
  void end_layer(const Region& region);

  // Backward, before `region` is needed: starts its way back. `allocate(bytes)` returns device
  // memory that the caller owns from then on and keeps until the region is dropped. Does nothing
  // for an unknown or already started region.
  using Allocate = std::function<Span(std::int64_t bytes)>;
  void prefetch(const Region& region, const Allocate& allocate);
  // The Span that `allocate` returned for the piece, when it is back; any number of times. Throws
  // Error when a copy of it failed.
  Span get(const Region& region, Ticket ticket, const Allocate& allocate);
  // The region's backward is over (or abandoned): host slabs are free again. Ends what is pending;
  // rethrows a failure of it after that.
  void drop(const Region& region);

  Totals totals() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rr::offload
