// From a CommandLine to a checked recipe and its plan, for answers and for training alike.
#pragma once

#include <vector>

#include "app/cli.h"
#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::app {

// Those of `problems` that make a plan impossible (errors), or a run (plan-only settings too).
std::vector<Problem> fatal(const std::vector<Problem>& problems, bool for_a_run);

// Throws UsageError with everything fatal. Logs the warnings where `speaks`: one rank is enough.
recipe::Recipe load_checked(const CommandLine& line, bool for_a_run, bool speaks = true);

// With the launch line. `recipe` has no errors.
plan::Plan make_plan(const CommandLine& line, const recipe::Recipe& recipe);

}  // namespace rr::app
