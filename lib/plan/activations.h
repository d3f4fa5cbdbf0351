// Private to plan: how many bytes forward keeps for backward. An estimate from shapes; the routing
// is taken as balanced.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace rr::plan {

// What one decoder layer (1-based id) keeps for the backward of one micro-batch.
std::int64_t layer_activation_bytes(const Plan& plan, int layer);
// The part of it that cpu_offloading moves: tensors of at least `min_elements`.
std::int64_t layer_moved_bytes(const Plan& plan, int layer);
// The input of a layer alone: what full recompute keeps.
std::int64_t layer_input_bytes(const Plan& plan);

struct ActivationBytes {
  std::int64_t device = 0;  // largest sum of what the micro-batches under way keep
  std::int64_t host = 0;    // of layers that cpu_offloading moves, all micro-batches under way
  std::int64_t logits = 0;  // of one micro-batch, last stage
};
// Walks the stage's steps and keeps the peak.
ActivationBytes activation_bytes(const Plan& plan, int stage, const std::vector<Step>& steps);

}  // namespace rr::plan
