// Private to plan: the tensors of one stage, in forward order, before they are placed in buffers.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace rr::plan {

// name, shape, size, layer, expert, decay, split and initial values are set; buffer and offset are
// not. `stage` has its layers, embedding and head.
std::vector<Parameter> stage_parameters(const ModelSpec& model, const Topology& topology,
                                        const StagePlan& stage);

// The decoder layers of one model chunk.
std::span<const int> layers_of_chunk(const StagePlan& stage, int chunk);

// Elements of all tensors of the whole model, each once, with unpadded vocabulary.
std::int64_t count_parameters(const ModelSpec& model);
// Those that take part for one token: K of E experts.
std::int64_t count_active_parameters(const ModelSpec& model);
// Multiply-adds of one layer's forward for one token; half of the attention's square counts.
double attention_macs_per_token(const ModelSpec& model);
double mlp_macs_per_token(const ModelSpec& model, bool moe);
// Forward and backward, one token (megatron.md 5.5).
double count_flops_per_token(const ModelSpec& model);

}  // namespace rr::plan
