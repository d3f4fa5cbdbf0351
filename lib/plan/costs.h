// Private to plan: how long one rank of a stage takes for each piece of a step on a machine.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::plan {

// For one micro-batch: products, passes over memory, and the tensor and expert traffic between.
struct LayerCost {
  int layer = 0;  // 0 embedding, 1..L, L+1 head
  double forward_s = 0;
  double backward_s = 0;  // with the forward again where it is recomputed
  double moved_s = 0;     // activation offload: over the link, one way
};

struct StageCost {
  std::vector<std::vector<LayerCost>> chunks;  // in forward order
  double message_s = 0;                        // one micro-batch to the next stage
  double reduce_s = 0;                         // reduce-scatter of all gradients
  double gather_s = 0;                         // all-gather of all weights
};
StageCost stage_cost(const Plan& plan, int stage, const recipe::Machine& machine);

// Seconds per element of a shard.
struct StepCost {
  double device_s = 0;  // Adam on the device
  double host_s = 0;    // Adam on this rank's share of the host's cores
  double down_s = 0;    // gradient to the host
  double up_s = 0;      // weight to the device
};
// `reference`: as the reference steps, one thread a rank and fp32 both ways.
StepCost step_cost(const Plan& plan, const recipe::Machine& machine, bool reference);

}  // namespace rr::plan
