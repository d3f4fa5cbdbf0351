// Host slabs of the store.
#include "offload/slabs.h"

#include <algorithm>

namespace rr::offload {

Slabs::~Slabs() {
  for (const auto& [bytes, slab] : free_) device_.release(slab);
}

Span Slabs::take(std::int64_t bytes) {
  if (bytes == 0) return {nullptr, 0, Pool::host};
  Span slab = reuse(bytes);
  if (slab.bytes == 0) slab = device_.allocate(Pool::host, bytes, "activation slab");
  in_use_ += slab.bytes;
  peak_ = std::max(peak_, in_use_);
  return slab;
}

// A kept slab of this size, or of up to twice the size. Sizes that change from step to step (routed
// tokens) must not add slabs for ever: one that is a little too small makes room for the new one.
Span Slabs::reuse(std::int64_t bytes) {
  auto fit = free_.lower_bound(bytes);
  if (fit != free_.end() && fit->first <= 2 * bytes) {
    const Span slab = fit->second;
    free_.erase(fit);
    return slab;
  }
  if (fit != free_.begin()) {
    --fit;
    if (2 * fit->first >= bytes) {
      device_.release(fit->second);
      free_.erase(fit);
    }
  }
  return {};
}

void Slabs::give_back(Span slab) {
  if (slab.bytes == 0) return;
  in_use_ -= slab.bytes;
  if (retain_) {
    free_.emplace(slab.bytes, slab);
  } else {
    device_.release(slab);
  }
}

}  // namespace rr::offload
