// Private to plan: the parts of a Plan that are read off the Config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::plan {

Topology make_topology(const recipe::Config& config, int world_size);
ModelSpec make_model(const recipe::Config& config, const Topology& topology);
// Decoder layers of each part, as lay_out takes them (megatron.md 1.5, 2.4); throws UsageError when
// they do not add up.
std::vector<int> split_layers(const recipe::Model& model, const Topology& topology);
BatchPlan make_batch(const recipe::Config& config, const Topology& topology);
DataPlan make_data(const recipe::Config& config, const ModelSpec& model, const BatchPlan& batch);

// "Et*3|(tt|)*6L" -> decoder layers of each part (pipeline_model_parallel_layout). Throws
// UsageError.
std::vector<int> layers_of_layout(const std::string& layout);

}  // namespace rr::plan
