// Norms over the whole model, agreed on by all ranks.
#include "optim/norms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "optim/sums.h"

namespace rr::optim {

Norms::Norms(const Environment& environment, const Memory& memory, const Buckets& buckets,
             const std::vector<Range>& ranges)
    : device_(environment.device),
      world_(environment.groups[plan::Group::world]),
      threads_(environment.threads),
      memory_(memory),
      buckets_(buckets),
      ranges_(ranges),
      count_zeros_(environment.plan.log.num_zeros) {
  const plan::StagePlan& stage =
      environment.plan.stages[static_cast<std::size_t>(environment.rank.stage)];
  for (const BucketView& bucket : buckets_.list()) {
    std::vector<Stretch>& own = stretches_.emplace_back();
    for (const plan::Parameter& parameter : stage.parameters) {
      if (parameter.buffer != bucket.buffer || parameter.duplicate) continue;
      const Stretch stretch{bucket.buffer, std::max(parameter.offset, bucket.own.begin),
                            std::min(parameter.offset + parameter.size, bucket.own.end)};
      if (stretch.begin < stretch.end) own.push_back(stretch);
    }
  }
}

StepResult Norms::of_gradients() {
  std::array<double, 2> totals = {0, 0};
  for (const int b : buckets_.order()) {
    device_.wait(device::Stream::compute, buckets_.reduced(b));
    for (const Stretch& stretch : stretches_[static_cast<std::size_t>(b)]) {
      const auto* data =
          memory_.gradients(stretch.buffer, stretch.begin, stretch.end).as<const float>();
      const std::int64_t n = stretch.end - stretch.begin;
      totals[0] += sum_of_squares(data, n, threads_);
      if (count_zeros_) totals[1] += count_zeros(data, n, threads_);
    }
  }
  world_.all_reduce_sum(totals);
  StepResult result;
  result.grad_norm = std::sqrt(totals[0]);
  result.num_zeros = totals[1];
  // Squares of finite floats cannot overflow a double: a sum that is not finite had a bad summand.
  result.finite = std::isfinite(totals[0]);
  if (!result.finite) result.failed_rank = rank_with_bad_gradient();
  return result;
}

bool Norms::finite(int buffer, std::int64_t begin, std::int64_t end) {
  const auto* data = memory_.gradients(buffer, begin, end).as<const float>();
  return std::isfinite(sum_of_squares(data, end - begin, threads_));
}

// Outside this rank's slices the gradients are still its own, so a bad one there is surely its
// doing; in a slice it may be another member's. The first kind decides if there is one.
int Norms::rank_with_bad_gradient() {
  bool surely = false, maybe = false;
  for (const BucketView& bucket : buckets_.list()) {
    const bool own_is_finite = finite(bucket.buffer, bucket.own.begin, bucket.own.end);
    if (bucket.group->size() == 1) {
      surely = surely || !own_is_finite;
    } else {
      maybe = maybe || !own_is_finite;
      surely = surely || !finite(bucket.buffer, bucket.bucket.begin, bucket.own.begin) ||
               !finite(bucket.buffer, bucket.own.end, bucket.bucket.end);
    }
  }
  const double score = world_.size() - world_.rank();
  std::array<double, 2> best = {surely ? score : 0.0, maybe ? score : 0.0};
  world_.all_reduce_max(best);
  return world_.size() - static_cast<int>(best[0] > 0 ? best[0] : best[1]);
}

double Norms::of_masters() {
  std::array<double, 1> total = {0};
  for (const std::vector<Stretch>& own : stretches_) {
    for (const Stretch& stretch : own) {
      total[0] += sum_of_squares(
          stretch.end - stretch.begin,
          [&](std::int64_t begin, std::int64_t count, float* out) {
            read_masters(stretch, begin, count, out);
          },
          threads_);
    }
  }
  world_.all_reduce_sum(total);
  return std::sqrt(total[0]);
}

// Homes cut a stretch anywhere; the norm must not depend on where.
void Norms::read_masters(const Stretch& stretch, std::int64_t begin, std::int64_t count,
                         float* out) const {
  const std::int64_t first = stretch.begin + begin, last = first + count;
  for (const Range& range : ranges_) {
    if (range.place.buffer != stretch.buffer) continue;
    const std::int64_t from = std::max(first, range.place.begin);
    const std::int64_t to = std::min(last, range.place.end);
    if (from >= to) continue;
    std::memcpy(out + (from - first), range.master.as<float>() + (from - range.place.begin),
                static_cast<std::size_t>(to - from) * 4);
  }
}

}  // namespace rr::optim
