// From a checked Config to a Plan, and a Plan as text.
#pragma once

#include <string>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::plan {

// `recipe` has no errors (recipe::Recipe::has_errors). Pure: equal input, equal Plan.
Plan make_plan(const recipe::Recipe& recipe, const recipe::Machine& machine);

// Stable text for people and golden files: layout, parameters, memory per rank class, schedule.
std::string layout_text(const Plan& plan);
std::string memory_text(const Plan& plan);
std::string schedule_text(const Plan& plan);
// All of the above, the changes and the launch line: what --dry-run prints.
std::string to_text(const Plan& plan);

// The mpirun line that starts `recipe_arguments` on the plan's world; no mpirun for one rank.
std::string launch_line(int world_size, const std::string& program,
                        const std::vector<std::string>& recipe_arguments);

// Learning rate and weight decay after `samples` consumed samples (megatron.md 7.7).
double learning_rate(const SchedulePlan& schedule, std::int64_t samples);
double weight_decay(const SchedulePlan& schedule, std::int64_t samples);

}  // namespace rr::plan
