// Private: this rank's memory, and its shard of it as ranges that know where each of their bytes
// lies.
#pragma once

#include <cstdint>
#include <vector>

#include "base/base.h"
#include "device/device.h"
#include "plan/plan.h"

namespace rr::optim {

// The allocations of one rank: flat weights and main gradients per buffer, and the slabs of
// plan::state_layout. Zeroed; released at the end.
class Memory {
 public:
  Memory(device::Device& device, const plan::Plan& plan, const plan::RankPlan& rank);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Span weights(int buffer) const { return weights_[static_cast<std::size_t>(buffer)]; }
  Span gradients(int buffer) const { return gradients_[static_cast<std::size_t>(buffer)]; }
  // Elements [begin, end) of a buffer.
  Span weights(int buffer, std::int64_t begin, std::int64_t end) const;
  Span gradients(int buffer, std::int64_t begin, std::int64_t end) const;
  // `elements` f32 (or weights, for host_weight) of shard range `range`; empty where the range has
  // nothing in that slab.
  Span slab(plan::Slab slab, std::size_t range, std::int64_t bytes) const;

 private:
  void release() noexcept;
  Span allocate(Pool pool, std::int64_t bytes, const char* what);

  device::Device& device_;
  const plan::StagePlan& stage_;
  plan::StateLayout layout_;
  std::vector<Span> owned_, weights_, gradients_;
  Span slabs_[plan::kNumSlabs];
};

// A stretch of a shard range under one weight decay rule; padding goes with what stands before it.
struct Run {
  std::int64_t begin = 0, end = 0;  // elements from the range's begin
  bool decay = false;
};

// A stretch of one parameter that lies in one shard range.
struct Piece {
  const plan::Parameter* parameter = nullptr;
  std::int64_t begin = 0, end = 0;  // elements from the range's begin
  std::int64_t first = 0;           // element of the full tensor at `begin`
};

// One plan::ShardRange with its memory. All spans cover the whole range.
struct Range {
  plan::ShardRange place;
  DType dtype = DType::f32;             // of the weights
  Span weight, gradient;                // on the device
  Span master, exp_avg, exp_avg_sq;     // where the range is stepped; f32
  Span device_master;                   // the device's copy of a master that is stepped on the host
  Span staged_gradient, staged_weight;  // host; staged_weight is `master` itself for f32 weights
  std::vector<Run> runs;
  std::vector<Piece> pieces;

  std::int64_t size() const { return place.end - place.begin; }
};

// Parallel to RankPlan::shard.
std::vector<Range> shard_ranges(const Memory& memory, const plan::Plan& plan,
                                const plan::RankPlan& rank);

// Elements [begin, end) of a span of `dtype`.
inline Span elements(Span span, DType dtype, std::int64_t begin, std::int64_t end) {
  return span.slice(begin * size_of(dtype), (end - begin) * size_of(dtype));
}

}  // namespace rr::optim
