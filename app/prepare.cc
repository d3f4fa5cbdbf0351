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
  const recipe::Optimizer& optimizer = recipe.config.optimizer;
  const bool is_auto =
      optimizer.optimizer_cpu_offload && optimizer.optimizer_offload_fraction.automatic;
  const bool is_run = line.action == Action::train || line.action == Action::print_launch;
  if (is_run && !is_auto && !line.machine_is_default)
    throw UsageError(Problem{.key = "--machine",
                             .where = "command line",
                             .what = "changes nothing in a run whose offload fraction is a number.",
                             .remedy = "Add --dry-run for a plan, or leave it out."});
  // The default machine is an answer's; a run does not know on what it runs.
  const recipe::Machine machine =
      is_run && line.machine_is_default
          ? recipe::Machine{}
          : recipe::load_machine(line.machine, line.request.search_paths);
  plan::Plan plan = plan::make_plan(recipe, machine);
  std::vector<std::string> arguments = line.run_arguments;
  // The run comes to the planned fraction for the same machine only.
  if (is_auto) arguments.insert(arguments.end(), {"--machine", line.machine});
  plan.launch = plan::launch_line(recipe.world_size, line.program, arguments);
  return plan;
}

}  // namespace rr::app
