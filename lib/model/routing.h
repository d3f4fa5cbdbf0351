// Which experts a token goes to, with what weight, and the losses that keep experts balanced;
// plain loops over fp32, no torch headers. Formulas: megatron.md 7.2.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace rr::model {

struct RouterShape {
  std::int64_t tokens = 0, experts = 0, per_token = 0;  // T, E, K
  plan::RouterScore score = plan::RouterScore::softmax;
  bool pre_softmax = false;
  double scaling = 1.0;
  plan::LoadBalance balance = plan::LoadBalance::none;
  std::int64_t sequences = 1;  // B: seq_aux_loss is the mean over runs of T / B tokens
  double aux_coefficient = 0.0, z_coefficient = 0.0;
};

struct Routing {
  std::vector<std::int32_t> experts;          // [T, K], best first; of equal scores the lower index
  std::vector<float> probabilities;           // [T, K]
  std::vector<std::int64_t> counts;           // [E] tokens that chose the expert
  std::vector<std::int64_t> sequence_counts;  // [B, E] with seq_aux_loss
  // Without their coefficients, as the reference logs them; 1 is perfect balance for every K.
  double load_balancing = 0, z = 0;
};

// Loss terms are summed in double, tokens ascending.
Routing route(const RouterShape& shape, const float* logits);

// dlogits [T, E] of dprobabilities [T, K], plus `loss_scale` times the gradients of the two losses
// with their coefficients. Counts carry no gradient.
void route_backward(const RouterShape& shape, const Routing& routing, const float* logits,
                    const float* dprobabilities, double loss_scale, float* dlogits);

// Tokens in the order in which experts take them: sorted by expert, tokens ascending.
struct Permutation {
  std::vector<std::int32_t> token_of_row;  // [T * K]
  std::vector<std::int32_t> slot_of_row;   // [T * K] t * K + k
  std::vector<std::int32_t> row_of_slot;   // [T, K]
};
Permutation sort_by_expert(const RouterShape& shape, const Routing& routing);

}  // namespace rr::model
