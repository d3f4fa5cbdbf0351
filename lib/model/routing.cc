// Router scores, top-k, balance losses and their gradients, one token at a time.
#include "model/routing.h"

#include <algorithm>
#include <cmath>

#include "model/parallel.h"

namespace rr::model {

namespace {

constexpr std::int64_t kGrain = 64;  // tokens of one piece of work

// The K largest of row[E], best first; the earlier index wins a tie.
void top_k(const float* row, std::int64_t experts, std::int64_t k, std::int32_t* out) {
  std::int64_t found = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    std::int64_t at = found;
    while (at > 0 && row[e] > row[out[at - 1]]) --at;
    if (at >= k) continue;
    found = std::min(found + 1, k);
    for (std::int64_t i = found - 1; i > at; --i) out[i] = out[i - 1];
    out[at] = static_cast<std::int32_t>(e);
  }
}

// Softmax of row[n] into out; returns log sum exp.
float softmax(const float* row, std::int64_t n, float* out) {
  const float most = *std::max_element(row, row + n);
  float total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += out[i] = std::exp(row[i] - most);
  for (std::int64_t i = 0; i < n; ++i) out[i] /= total;
  return most + std::log(total);
}

// d of softmax: x[i] = p[i] * (g[i] - sum p g), added to out.
void add_softmax_backward(const float* p, const float* g, std::int64_t n, float* out) {
  float dot = 0;
  for (std::int64_t i = 0; i < n; ++i) dot += p[i] * g[i];
  for (std::int64_t i = 0; i < n; ++i) out[i] += p[i] * (g[i] - dot);
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
constexpr float kTiny = 1e-20F;

// What the balance loss sees of one token: the softmax over all experts, or sigmoids that sum to 1.
// Returns log sum exp of the logits for the z-loss.
float balance_scores(const RouterShape& shape, const float* row, float* out) {
  const float log_sum = softmax(row, shape.experts, out);
  if (shape.score == plan::RouterScore::softmax) return log_sum;
  float total = kTiny;
  for (std::int64_t e = 0; e < shape.experts; ++e) total += out[e] = sigmoid(row[e]);
  for (std::int64_t e = 0; e < shape.experts; ++e) out[e] /= total;
  return log_sum;
}

void token_forward(const RouterShape& shape, const float* row, std::int32_t* chosen,
                   float* probabilities, float* buffer) {
  const std::int64_t k = shape.per_token;
  top_k(row, shape.experts, k, chosen);
  for (std::int64_t i = 0; i < k; ++i) probabilities[i] = row[chosen[i]];
  if (shape.score == plan::RouterScore::sigmoid) {
    float total = kTiny;
    for (std::int64_t i = 0; i < k; ++i) total += probabilities[i] = sigmoid(probabilities[i]);
    for (std::int64_t i = 0; i < k && k > 1; ++i) probabilities[i] /= total;
  } else if (shape.pre_softmax) {
    softmax(row, shape.experts, buffer);
    for (std::int64_t i = 0; i < k; ++i) probabilities[i] = buffer[chosen[i]];
  } else {
    softmax(probabilities, k, probabilities);
  }
  for (std::int64_t i = 0; i < k; ++i) probabilities[i] *= static_cast<float>(shape.scaling);
}

// The part of dlogits that comes through the probabilities.
void token_backward(const RouterShape& shape, const float* row, const std::int32_t* chosen,
                    const float* dprobabilities, float* dlogits, float* buffer) {
  const std::int64_t k = shape.per_token;
  const auto scaling = static_cast<float>(shape.scaling);
  if (shape.score == plan::RouterScore::softmax && shape.pre_softmax) {
    softmax(row, shape.experts, buffer);
    float dot = 0;
    for (std::int64_t i = 0; i < k; ++i) dot += buffer[chosen[i]] * dprobabilities[i] * scaling;
    for (std::int64_t e = 0; e < shape.experts; ++e) dlogits[e] -= buffer[e] * dot;
    for (std::int64_t i = 0; i < k; ++i) {
      dlogits[chosen[i]] += buffer[chosen[i]] * dprobabilities[i] * scaling;
    }
    return;
  }
  float* p = buffer;
  float* g = buffer + k;
  float* d = buffer + 2 * k;
  for (std::int64_t i = 0; i < k; ++i) {
    p[i] = row[chosen[i]];
    g[i] = dprobabilities[i] * scaling;
    d[i] = 0;
  }
  if (shape.score == plan::RouterScore::softmax) {
    softmax(p, k, p);
    add_softmax_backward(p, g, k, d);
  } else {
    // y = s / S with S the sum of the chosen: dy/ds = (g - sum g y) / S, then the sigmoid's slope.
    float total = kTiny, dot = 0;
    for (std::int64_t i = 0; i < k; ++i) total += p[i] = sigmoid(p[i]);
    for (std::int64_t i = 0; i < k && k > 1; ++i) dot += g[i] * p[i] / total;
    for (std::int64_t i = 0; i < k; ++i) {
      d[i] = (k > 1 ? (g[i] - dot) / total : g[i]) * p[i] * (1.0F - p[i]);
    }
  }
  for (std::int64_t i = 0; i < k; ++i) dlogits[chosen[i]] += d[i];
}

bool has_balance(const RouterShape& shape) { return shape.balance != plan::LoadBalance::none; }
std::int64_t segments(const RouterShape& shape) {
  return shape.balance == plan::LoadBalance::seq_aux_loss ? shape.sequences : 1;
}
// E / (K n^2) of a segment of n tokens, averaged over segments.
double balance_factor(const RouterShape& shape) {
  const auto n = static_cast<double>(shape.tokens / segments(shape));
  return static_cast<double>(shape.experts) /
         (static_cast<double>(shape.per_token) * n * n * static_cast<double>(segments(shape)));
}

void count_tokens(const RouterShape& shape, Routing& routing) {
  const std::int64_t parts = segments(shape), length = shape.tokens / parts;
  routing.counts.assign(static_cast<std::size_t>(shape.experts), 0);
  routing.sequence_counts.assign(static_cast<std::size_t>(parts * shape.experts), 0);
  for (std::int64_t slot = 0; slot < shape.tokens * shape.per_token; ++slot) {
    const std::int64_t expert = routing.experts[static_cast<std::size_t>(slot)];
    const std::int64_t part = slot / shape.per_token / length;
    ++routing.counts[static_cast<std::size_t>(expert)];
    ++routing.sequence_counts[static_cast<std::size_t>(part * shape.experts + expert)];
  }
}

// Both losses: per token in parallel, summed in token order.
void add_losses(const RouterShape& shape, const float* logits, Routing& routing) {
  if (!has_balance(shape) && shape.z_coefficient == 0) return;
  const std::int64_t length = shape.tokens / segments(shape);
  std::vector<double> balance(static_cast<std::size_t>(shape.tokens));
  std::vector<double> squares(static_cast<std::size_t>(shape.tokens));
  for_ranges(
      shape.tokens, kGrain, shape.tokens * shape.experts * 8,
      [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> scores(static_cast<std::size_t>(shape.experts));
        for (std::int64_t t = begin; t < end; ++t) {
          const double log_sum = balance_scores(shape, logits + t * shape.experts, scores.data());
          const std::int64_t* counts = routing.sequence_counts.data() + t / length * shape.experts;
          double sum = 0;
          for (std::int64_t e = 0; e < shape.experts; ++e) {
            sum += static_cast<double>(scores[static_cast<std::size_t>(e)]) *
                   static_cast<double>(counts[e]);
          }
          balance[static_cast<std::size_t>(t)] = sum;
          squares[static_cast<std::size_t>(t)] = log_sum * log_sum;
        }
      });
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    routing.load_balancing += balance[static_cast<std::size_t>(t)];
    routing.z += squares[static_cast<std::size_t>(t)];
  }
  routing.load_balancing *= has_balance(shape) ? balance_factor(shape) : 0.0;
  routing.z /= static_cast<double>(shape.tokens);
}

// Adds the gradients of both losses for one token.
void token_losses_backward(const RouterShape& shape, const float* row, const std::int64_t* counts,
                           double loss_scale, float* dlogits, float* buffer) {
  const std::int64_t experts = shape.experts;
  float* scores = buffer;
  float* g = buffer + experts;
  const float log_sum = balance_scores(shape, row, scores);
  const auto weight =
      static_cast<float>(loss_scale * shape.aux_coefficient * balance_factor(shape));
  if (has_balance(shape)) {
    for (std::int64_t e = 0; e < experts; ++e) g[e] = weight * static_cast<float>(counts[e]);
    if (shape.score == plan::RouterScore::softmax) {
      add_softmax_backward(scores, g, experts, dlogits);
    } else {
      // scores = s / S, S the sum of all: as for the chosen ones.
      float total = kTiny, dot = 0;
      for (std::int64_t e = 0; e < experts; ++e) total += sigmoid(row[e]);
      for (std::int64_t e = 0; e < experts; ++e) dot += g[e] * scores[e];
      for (std::int64_t e = 0; e < experts; ++e) {
        const float s = sigmoid(row[e]);
        dlogits[e] += (g[e] - dot) / total * s * (1.0F - s);
      }
    }
  }
  if (shape.z_coefficient == 0) return;
  const auto z = static_cast<float>(loss_scale * shape.z_coefficient * 2.0 /
                                    static_cast<double>(shape.tokens)) *
                 log_sum;
  softmax(row, experts, scores);
  for (std::int64_t e = 0; e < experts; ++e) dlogits[e] += z * scores[e];
}

}  // namespace

Routing route(const RouterShape& shape, const float* logits) {
  Routing routing;
  const std::int64_t k = shape.per_token;
  routing.experts.resize(static_cast<std::size_t>(shape.tokens * k));
  routing.probabilities.resize(static_cast<std::size_t>(shape.tokens * k));
  for_ranges(shape.tokens, kGrain, shape.tokens * shape.experts * 8,
             [&](std::int64_t begin, std::int64_t end) {
               std::vector<float> buffer(static_cast<std::size_t>(shape.experts));
               for (std::int64_t t = begin; t < end; ++t) {
                 token_forward(shape, logits + t * shape.experts, routing.experts.data() + t * k,
                               routing.probabilities.data() + t * k, buffer.data());
               }
             });
  count_tokens(shape, routing);
  add_losses(shape, logits, routing);
  return routing;
}

void route_backward(const RouterShape& shape, const Routing& routing, const float* logits,
                    const float* dprobabilities, double loss_scale, float* dlogits) {
  const std::int64_t k = shape.per_token, length = shape.tokens / segments(shape);
  const bool losses = has_balance(shape) || shape.z_coefficient != 0;
  for_ranges(shape.tokens, kGrain, shape.tokens * shape.experts * 8,
             [&](std::int64_t begin, std::int64_t end) {
               std::vector<float> buffer(static_cast<std::size_t>(3 * std::max(shape.experts, k)));
               for (std::int64_t t = begin; t < end; ++t) {
                 const float* row = logits + t * shape.experts;
                 float* out = dlogits + t * shape.experts;
                 std::fill_n(out, shape.experts, 0.0F);
                 token_backward(shape, row, routing.experts.data() + t * k, dprobabilities + t * k,
                                out, buffer.data());
                 if (!losses) continue;
                 const std::int64_t* counts =
                     routing.sequence_counts.data() + t / length * shape.experts;
                 token_losses_backward(shape, row, counts, loss_scale, out, buffer.data());
               }
             });
}

Permutation sort_by_expert(const RouterShape& shape, const Routing& routing) {
  const std::int64_t slots = shape.tokens * shape.per_token;
  Permutation result;
  result.token_of_row.resize(static_cast<std::size_t>(slots));
  result.slot_of_row.resize(static_cast<std::size_t>(slots));
  result.row_of_slot.resize(static_cast<std::size_t>(slots));
  std::vector<std::int64_t> next(static_cast<std::size_t>(shape.experts), 0);
  for (std::size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + routing.counts[e - 1];
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const auto expert = static_cast<std::size_t>(routing.experts[static_cast<std::size_t>(slot)]);
    const std::int64_t row = next[expert]++;
    result.token_of_row[static_cast<std::size_t>(row)] =
        static_cast<std::int32_t>(slot / shape.per_token);
    result.slot_of_row[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(slot);
    result.row_of_slot[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(row);
  }
  return result;
}

}  // namespace rr::model
