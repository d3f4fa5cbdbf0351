// Private: the store's host memory, one slab per stored piece, kept for reuse when asked to.
#pragma once

#include <cstdint>
#include <map>

#include "base/base.h"
#include "device/device.h"

namespace rr::offload {

class Slabs {
 public:
  Slabs(device::Device& device, bool retain) : device_(device), retain_(retain) {}
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // At least `bytes` bytes of host memory; the caller gives the same Span back. Throws Error when
  // the host pool is full.
  Span take(std::int64_t bytes);
  // Nothing pending may touch it.
  void give_back(Span slab);

  std::int64_t peak() const { return peak_; }

 private:
  Span reuse(std::int64_t bytes);

  device::Device& device_;
  bool retain_;
  std::multimap<std::int64_t, Span> free_;  // by size
  std::int64_t in_use_ = 0, peak_ = 0;
};

}  // namespace rr::offload
