// Learning rate and weight decay as functions of the samples consumed (megatron.md 7.7).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/planner.h"

namespace rr::plan {

namespace {

double half_cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

// The share of max_lr - min_lr that is left of a warm-up-stable-decay schedule.
double wsd_share(const SchedulePlan& schedule, double samples) {
  const auto start = static_cast<double>(schedule.decay - schedule.wsd_decay);
  if (samples <= start) return 1.0;
  const double ratio = (samples - start) / static_cast<double>(schedule.wsd_decay);
  switch (schedule.wsd_style) {
    case WsdDecay::linear:
      return 1.0 - ratio;
    case WsdDecay::cosine:
      return half_cosine(ratio);
    case WsdDecay::exponential:
      return 2.0 * std::pow(0.5, ratio) - 1.0;
    case WsdDecay::minus_sqrt:
      return 1.0 - std::sqrt(ratio);
  }
  return 1.0;
}

}  // namespace

double learning_rate(const SchedulePlan& schedule, std::int64_t samples) {
  const auto n = static_cast<double>(samples);
  const auto warmup = static_cast<double>(schedule.warmup);
  const double range = schedule.max_lr - schedule.min_lr;
  if (schedule.warmup > 0 && samples <= schedule.warmup) {
    return schedule.warmup_init + (schedule.max_lr - schedule.warmup_init) * n / warmup;
  }
  if (schedule.style == Decay::constant) return schedule.max_lr;
  // After this line warmup < decay, so no division below is by zero.
  if (samples > schedule.decay || schedule.decay <= schedule.warmup) return schedule.min_lr;
  const double ratio = (n - warmup) / (static_cast<double>(schedule.decay) - warmup);
  switch (schedule.style) {
    case Decay::constant:
      break;
    case Decay::linear:
      return schedule.min_lr + range * (1.0 - ratio);
    case Decay::cosine:
      return schedule.min_lr + range * half_cosine(ratio);
    case Decay::inverse_square_root:
      return std::max(schedule.min_lr, schedule.max_lr * std::sqrt(std::max(warmup, 1.0)) /
                                           std::sqrt(std::max(n, 1.0)));
    case Decay::wsd:
      return schedule.min_lr + range * wsd_share(schedule, n);
  }
  return schedule.max_lr;
}

double weight_decay(const SchedulePlan& schedule, std::int64_t samples) {
  using Ramp = SchedulePlan::Ramp;
  if (schedule.weight_decay_ramp == Ramp::constant || samples >= schedule.weight_decay_steps) {
    return schedule.end_weight_decay;
  }
  const double ratio =
      static_cast<double>(samples) / static_cast<double>(schedule.weight_decay_steps);
  const double share =
      schedule.weight_decay_ramp == Ramp::linear ? ratio : half_cosine(1.0 - ratio);
  return schedule.start_weight_decay +
         share * (schedule.end_weight_decay - schedule.start_weight_decay);
}

}  // namespace rr::plan
