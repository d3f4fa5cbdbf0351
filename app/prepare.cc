// Loads, checks and plans a recipe.
#include "app/prepare.h"

#include "base/log.h"
#include "plan/planner.h"

namespace rr::app {

std::vector<Problem> fatal(const std::vector<Problem>& problems, bool for_a_run) {
  std::vector<Problem> found;
  for (const Problem& problem : problems)
    if (problem.severity == Severity::error ||
        (for_a_run && problem.severity == Severity::plan_only))
      found.push_back(problem);
  return found;
}

recipe::Recipe load_checked(const CommandLine& line, bool for_a_run, bool speaks) {
  recipe::Recipe recipe = recipe::load(line.request);
  for (const Problem& problem : recipe.problems)
    if (speaks && problem.severity == Severity::warning) log_warning(to_string(problem));
  const std::vector<Problem> problems = fatal(recipe.problems, for_a_run);
  if (!problems.empty()) throw UsageError(problems);
  return recipe;
}

plan::Plan make_plan(const CommandLine& line, const recipe::Recipe& recipe) {
  // The default machine is an answer's; a run does not know on what it runs.
  const bool unknown = line.action == Action::train && line.machine_is_default;
  const recipe::Machine machine =
      unknown ? recipe::Machine{} : recipe::load_machine(line.machine, line.request.search_paths);
  plan::Plan plan = plan::make_plan(recipe, machine);
  plan.launch = plan::launch_line(recipe.world_size, line.program, line.run_arguments);
  return plan;
}

}  // namespace rr::app
