// Greedy blending in double precision, as the reference computes it: its rounding decides ties.
#include "data/blend.h"

#include <algorithm>
#include <numeric>

namespace rr::data {

namespace {

// numpy.sum: eight running sums over blocks of up to 128 values, halves of more added up.
double numpy_sum(const double* values, std::size_t count) {
  if (count < 8) return std::accumulate(values, values + count, 0.0);
  if (count > 128) {
    const std::size_t half = count / 2 / 8 * 8;
    return numpy_sum(values, half) + numpy_sum(values + half, count - half);
  }
  double lanes[8];
  std::copy(values, values + 8, lanes);
  std::size_t i = 8;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
  }
  const double sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                     ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  return std::accumulate(values + i, values + count, sum);
}

// How many samples part `i` lags behind its weight when sample `next` is drawn.
double lag(double weight, std::int64_t next, std::int64_t drawn) {
  return weight * std::max(static_cast<double>(next), 1.0) - static_cast<double>(drawn);
}

}  // namespace

std::vector<double> normalised(const std::vector<double>& weights) {
  const double sum = numpy_sum(weights.data(), weights.size());
  std::vector<double> quotients(weights);
  for (double& weight : quotients) weight /= sum;
  return quotients;
}

Blend blend_by_weight(const std::vector<double>& weights, std::int64_t size) {
  Blend blend;
  blend.part.reserve(static_cast<std::size_t>(size));
  blend.sample.reserve(static_cast<std::size_t>(size));
  std::vector<std::int64_t> drawn(weights.size(), 0);
  for (std::int64_t next = 0; next < size; ++next) {
    std::size_t best = 0;
    double most = lag(weights[0], next, drawn[0]);
    for (std::size_t i = 1; i < weights.size(); ++i) {
      const double candidate = lag(weights[i], next, drawn[i]);
      if (candidate > most) {
        most = candidate;
        best = i;
      }
    }
    blend.part.push_back(static_cast<std::int16_t>(best));
    blend.sample.push_back(drawn[best]++);
  }
  return blend;
}

Blend blend_everything(const std::vector<std::int64_t>& sizes) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  Blend blend;
  blend.part.reserve(static_cast<std::size_t>(total));
  blend.sample.reserve(static_cast<std::size_t>(total));
  std::vector<double> weights;
  for (const std::int64_t size : sizes) {
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  }
  std::vector<std::int64_t> drawn(sizes.size(), 0);
  for (std::int64_t next = 0; next < total; ++next) {
    std::size_t best = sizes.size();
    double most = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (drawn[i] == sizes[i]) continue;
      const double candidate = lag(weights[i], next, drawn[i]);
      if (best == sizes.size() || candidate > most) {
        most = candidate;
        best = i;
      }
    }
    blend.part.push_back(static_cast<std::int16_t>(best));
    blend.sample.push_back(drawn[best]++);
  }
  return blend;
}

}  // namespace rr::data
