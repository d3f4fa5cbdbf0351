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
  // `retain_buffers`: host slabs are kept for the next micro-batch instead of given back.
  Store(device::Device& device, bool retain_buffers);
  ~Store();  // waits for everything pending
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Forward. Queues `bytes` (device memory) for the way out. `release` gives the device storage
  // back; it is called on this thread, at a boundary, after the copy has ended.
  Ticket put(const Region& region, Span bytes, std::function<void()> release);
  // Forward, layer boundary: releases what has left; blocks for copies of regions other than
  // `region` (at most one layer's copies stay in flight).
  void end_layer(const Region& region);

  // Backward, before `region` is needed: starts its way back. `allocate(bytes)` returns device
  // memory that the caller owns from then on. Does nothing for an unknown or already started region.
  using Allocate = std::function<Span(std::int64_t bytes)>;
  void prefetch(const Region& region, const Allocate& allocate);
  // Blocks until the piece is back; the Span that `allocate` returned for it.
  Span get(const Region& region, Ticket ticket, const Allocate& allocate);
  // The region's backward is over (or abandoned): host slabs are free again.
  void drop(const Region& region);

  Totals totals() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rr::offload
