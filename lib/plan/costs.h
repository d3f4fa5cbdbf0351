// Private to plan: how long one rank of a stage takes for each piece of a step on a machine.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::plan {

struct LayerCost {
  int layer = 0;         // 0 embedding, 1..L, L+1 head
  double forward_s = 0;  // compute and the tensor and expert traffic inside it
};

struct StageCost {
  std::vector<std::vector<LayerCost>> chunks;  // in forward order
  double message_s = 0;                        // one micro-batch to the next stage
  double reduce_s = 0;                         // reduce-scatter of all gradients
  double gather_s = 0;                         // all-gather of all weights
  double backward_factor = 2;                  // of forward; 3 where forward is recomputed

  double forward_s(int chunk) const;
};
StageCost stage_cost(const Plan& plan, int stage, const recipe::Machine& machine);

// Seconds per element of a shard.
struct StepCost {
  double device_s = 0;  // Adam on the device
  double host_s = 0;    // Adam on this rank's share of the host's cores
  double down_s = 0;    // gradient to the host
  double up_s = 0;      // weight to the device
};
StepCost step_cost(const Plan& plan, const recipe::Machine& machine, bool one_thread);

}  // namespace rr::plan
