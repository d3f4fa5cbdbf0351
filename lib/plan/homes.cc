// Which part of a rank's shard leaves the device.
#include "plan/homes.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace rr::plan {

namespace {

constexpr std::int64_t kAlign = 64;

// This rank's slice of one parameter, the padding after it included; layers and tensors are where
// homes may change.
struct Piece {
  int buffer = 0, bucket = 0;
  std::int64_t begin = 0, end = 0;  // elements of the buffer
  std::int64_t elements = 0;        // of the parameter itself
  int layer = 0;
  bool expert = false, decay = true;
  std::int64_t away = 0;  // elements from the end that leave the device
};

int bucket_of(const FlatBuffer& buffer, std::int64_t offset) {
  const auto after = std::upper_bound(
      buffer.buckets.begin(), buffer.buckets.end(), offset,
      [](std::int64_t value, const Bucket& bucket) { return value < bucket.begin; });
  return static_cast<int>(after - buffer.buckets.begin()) - 1;
}

// The reference keeps every expert's matrix as a tensor of its own.
std::int64_t tensors_of(const Plan& plan, const Parameter& p) {
  const bool apart = plan.optimizer.placement == OptimizerPlan::Placement::megatron && p.expert &&
                     (p.size / p.shape[0]) % kAlign == 0;
  return apart ? p.shape[0] : 1;
}

// The pieces in forward order per buffer. A bucket's tail padding belongs to its last parameter.
std::vector<Piece> pieces_of(const Plan& plan, const StagePlan& stage, const Coordinates& at) {
  const Topology& t = plan.topology;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    const Parameter& p = stage.parameters[i];
    const FlatBuffer& buffer = stage.buffers[static_cast<std::size_t>(p.buffer)];
    const int k = bucket_of(buffer, p.offset);
    const Bucket& bucket = buffer.buckets[static_cast<std::size_t>(k)];
    std::int64_t end = p.offset + round_up(p.size, kAlign);
    const auto next = std::find_if(
        stage.parameters.begin() + static_cast<std::ptrdiff_t>(i) + 1, stage.parameters.end(),
        [&](const Parameter& other) { return other.buffer == p.buffer; });
    if (next == stage.parameters.end() || next->offset >= bucket.end) end = bucket.end;
    Slice mine{bucket.begin, bucket.end};
    if (plan.optimizer.sharded) {
      mine = p.expert ? shard_of(bucket, at.expert_data, t.expert_data)
                      : shard_of(bucket, at.data * t.context + at.context, t.size(Group::data));
    }
    const std::int64_t tensors = tensors_of(plan, p), size = p.size / tensors;
    for (std::int64_t n = 0; n < tensors; ++n) {
      const std::int64_t from = p.offset + n * size, to = n + 1 < tensors ? from + size : end;
      Piece piece{
          p.buffer, k, std::max(from, mine.begin), std::min(to, mine.end), 0, p.layer, p.expert,
          p.decay,  0};
      piece.elements = std::max<std::int64_t>(0, std::min(from + size, piece.end) - piece.begin);
      if (piece.begin < piece.end) pieces.push_back(piece);
    }
  }
  return pieces;
}

void move_latest_first(std::vector<Piece>& pieces, double fraction) {
  std::int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.end - piece.begin;
  std::int64_t left = total;
  if (fraction < 1.0) {
    left = static_cast<std::int64_t>(
               std::floor(fraction * static_cast<double>(total) / static_cast<double>(kAlign))) *
           kAlign;
  }
  std::vector<Piece*> order;
  for (Piece& piece : pieces) order.push_back(&piece);
  // Latest layer first; in a layer, from its end: experts, then the rest.
  std::stable_sort(order.begin(), order.end(), [](const Piece* a, const Piece* b) {
    return std::tie(a->layer, a->expert, a->begin) > std::tie(b->layer, b->expert, b->begin);
  });
  for (Piece* piece : order) {
    piece->away = std::min(left, piece->end - piece->begin);
    left -= piece->away;
  }
}

// megatron.md 3.1: per optimizer, the decay group before the other, latest tensors first, whole
// tensors while less than the fraction has left.
void move_as_megatron(std::vector<Piece>& pieces, double fraction) {
  for (const bool expert : {false, true}) {
    std::vector<Piece*> order;
    std::int64_t total = 0, moved = 0;
    for (Piece& piece : pieces) {
      if (piece.expert != expert) continue;
      order.push_back(&piece);
      total += piece.elements;
    }
    std::stable_sort(order.begin(), order.end(), [](const Piece* a, const Piece* b) {
      return std::tie(a->decay, a->begin) > std::tie(b->decay, b->begin);
    });
    for (Piece* piece : order) {
      if (static_cast<double>(moved) >= fraction * static_cast<double>(total)) break;
      piece->away = piece->end - piece->begin;
      moved += piece->elements;
    }
  }
}

// Neighbours of one home and bucket become one range.
void append(std::vector<ShardRange>& shard, const ShardRange& range) {
  if (range.begin == range.end) return;
  if (!shard.empty()) {
    ShardRange& last = shard.back();
    if (last.buffer == range.buffer && last.bucket == range.bucket && last.home == range.home &&
        last.end == range.begin) {
      last.end = range.end;
      return;
    }
  }
  shard.push_back(range);
}

}  // namespace

std::vector<ShardRange> shard_with_homes(const Plan& plan, int stage_index, const Coordinates& at) {
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_index)];
  std::vector<Piece> pieces = pieces_of(plan, stage, at);
  if (plan.optimizer.cpu_offload && plan.optimizer.fraction > 0) {
    switch (plan.optimizer.placement) {
      case OptimizerPlan::Placement::latest_first:
        move_latest_first(pieces, plan.optimizer.fraction);
        break;
      case OptimizerPlan::Placement::megatron:
        move_as_megatron(pieces, plan.optimizer.fraction);
        break;
    }
  }
  const auto first_layer = [&](const Piece& piece) {
    return stage.buffers[static_cast<std::size_t>(piece.buffer)]
        .buckets[static_cast<std::size_t>(piece.bucket)]
        .first_layer;
  };
  std::stable_sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    return std::tuple(first_layer(a), a.buffer, a.begin) <
           std::tuple(first_layer(b), b.buffer, b.begin);
  });
  std::vector<ShardRange> shard;
  for (const Piece& piece : pieces) {
    const std::int64_t middle = piece.end - piece.away;
    append(shard, {piece.buffer, piece.bucket, piece.begin, middle, Home::device});
    append(shard, {piece.buffer, piece.bucket, middle, piece.end, Home::host});
  }
  return shard;
}

}  // namespace rr::plan
