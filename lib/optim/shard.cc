// Allocation of what the Plan says, and its cut into ranges.
#include "optim/shard.h"

#include <algorithm>

namespace rr::optim {

Memory::Memory(device::Device& device, const plan::Plan& plan, const plan::RankPlan& rank)
    : device_(device),
      stage_(plan.stages[static_cast<std::size_t>(rank.stage)]),
      layout_(plan::state_layout(plan, rank)) {
  try {
    for (const plan::FlatBuffer& buffer : stage_.buffers) {
      weights_.push_back(allocate(Pool::device, buffer.size * size_of(buffer.dtype), "weights"));
      gradients_.push_back(
          allocate(Pool::device, buffer.size * size_of(DType::f32), "main gradients"));
    }
    for (int i = 0; i < plan::kNumSlabs; ++i) {
      const auto slab = static_cast<plan::Slab>(i);
      slabs_[i] = allocate(plan::pool_of(slab), layout_.size(slab), plan::name_of(slab));
    }
  } catch (...) {
    release();
    throw;
  }
}

Memory::~Memory() { release(); }

void Memory::release() noexcept {
  for (const Span& span : owned_) device_.release(span);
  owned_.clear();
}

Span Memory::allocate(Pool pool, std::int64_t bytes, const char* what) {
  if (bytes == 0) return {nullptr, 0, pool};
  owned_.push_back(device_.allocate(pool, bytes, what));
  return owned_.back();
}

Span Memory::weights(int buffer, std::int64_t begin, std::int64_t end) const {
  return elements(weights(buffer), stage_.buffers[static_cast<std::size_t>(buffer)].dtype, begin,
                  end);
}

Span Memory::gradients(int buffer, std::int64_t begin, std::int64_t end) const {
  return elements(gradients(buffer), DType::f32, begin, end);
}

Span Memory::slab(plan::Slab slab, std::size_t range, std::int64_t bytes) const {
  const std::int64_t offset = layout_.offset(range, slab);
  if (offset < 0) return {};
  return slabs_[static_cast<std::size_t>(slab)].slice(offset, bytes);
}

namespace {

void cut(Range& range, const plan::StagePlan& stage, const plan::RankPlan& rank) {
  const std::int64_t origin = range.place.begin;
  for (const plan::Parameter& parameter : stage.parameters) {
    if (parameter.buffer != range.place.buffer) continue;
    const std::int64_t begin = std::max(parameter.offset, origin);
    const std::int64_t end = std::min(parameter.offset + parameter.size, range.place.end);
    if (begin >= end) continue;
    range.pieces.push_back({&parameter, begin - origin, end - origin,
                            plan::first_element(parameter, rank) + begin - parameter.offset});
  }
  std::sort(range.pieces.begin(), range.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  for (const Piece& piece : range.pieces) {
    if (!range.runs.empty() && range.runs.back().decay == piece.parameter->decay) continue;
    if (!range.runs.empty()) range.runs.back().end = piece.begin;
    range.runs.push_back({range.runs.empty() ? 0 : piece.begin, 0, piece.parameter->decay});
  }
  if (range.runs.empty()) range.runs.push_back({});  // padding alone: nothing decays
  range.runs.back().end = range.size();
}

}  // namespace

std::vector<Range> shard_ranges(const Memory& memory, const plan::Plan& plan,
                                const plan::RankPlan& rank) {
  const plan::StagePlan& stage = plan.stages[static_cast<std::size_t>(rank.stage)];
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < rank.shard.size(); ++i) {
    Range range;
    range.place = rank.shard[i];
    const plan::ShardRange& place = range.place;
    range.dtype = stage.buffers[static_cast<std::size_t>(place.buffer)].dtype;
    range.weight = memory.weights(place.buffer, place.begin, place.end);
    range.gradient = memory.gradients(place.buffer, place.begin, place.end);
    const auto state = [&](plan::Slab slab, DType dtype = DType::f32) {
      return memory.slab(slab, i, range.size() * size_of(dtype));
    };
    switch (place.home) {
      case plan::Home::device:
        range.master = range.dtype == DType::f32 ? range.weight : state(plan::Slab::device_master);
        range.exp_avg = state(plan::Slab::device_exp_avg);
        range.exp_avg_sq = state(plan::Slab::device_exp_avg_sq);
        break;
      case plan::Home::host:
        range.master = state(plan::Slab::host_master);
        range.exp_avg = state(plan::Slab::host_exp_avg);
        range.exp_avg_sq = state(plan::Slab::host_exp_avg_sq);
        range.device_master = state(plan::Slab::device_master);
        range.staged_gradient = state(plan::Slab::host_gradient);
        range.staged_weight =
            range.dtype == DType::f32 ? range.master : state(plan::Slab::host_weight, range.dtype);
        break;
      case plan::Home::streamed:
        RR_CHECK(false, "no plan has streamed ranges yet");
    }
    RR_CHECK(range.master.data && range.exp_avg.data && range.exp_avg_sq.data,
             "every range has a master and moments");
    cut(range, stage, rank);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

}  // namespace rr::optim
