// run_recipe: argv in, exit code out. The only catch-all.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <span>

#include "app/cli.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/comm.h"
#include "data/data.h"
#include "plan/planner.h"
#include "recipe/recipe.h"
#include "train/train.h"

extern char** environ;

namespace rr::app {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (!text.empty() && text.back() != '\n') std::fputc('\n', stdout);
  std::fflush(stdout);
}

std::string version_text() {
  return fmt::format("run_recipe {} ({})\ncompiler {}\ntorch 2.11.0, CPU build, {}\n", RR_VERSION,
                     RR_GIT_HASH, RR_CXX_COMPILER, "Open MPI");
}

std::string recipe_list(const std::vector<recipe::RecipeInfo>& recipes) {
  std::size_t width = 0;
  for (const recipe::RecipeInfo& info : recipes) width = std::max(width, info.name.size());
  std::string text;
  for (const recipe::RecipeInfo& info : recipes)
    text += fmt::format("{:<{}}  {}\n", info.name, width, info.summary);
  return text;
}

void log_warnings(const recipe::Recipe& recipe) {
  for (const Problem& problem : recipe.problems)
    if (problem.severity == Severity::warning) log_warning(to_string(problem));
}

// What makes a plan (errors only) or a run (plan-only settings too) impossible.
void refuse_problems(const recipe::Recipe& recipe, bool for_a_run) {
  std::vector<Problem> fatal;
  for (const Problem& problem : recipe.problems)
    if (problem.severity == Severity::error ||
        (for_a_run && problem.severity == Severity::plan_only))
      fatal.push_back(problem);
  if (!fatal.empty()) throw UsageError(fatal);
}

recipe::Recipe load_checked(const CommandLine& line, bool for_a_run) {
  recipe::Recipe recipe = recipe::load(line.request);
  log_warnings(recipe);
  refuse_problems(recipe, for_a_run);
  return recipe;
}

plan::Plan make_plan(const CommandLine& line, const recipe::Recipe& recipe) {
  const recipe::Machine machine = recipe::load_machine(line.machine, line.request.search_paths);
  plan::Plan plan = plan::make_plan(recipe, machine);
  std::vector<std::string> arguments;
  for (const std::string& argument : line.arguments)
    if (argument != "--print-launch" && argument != "--dry-run" && argument != "--dry_run")
      arguments.push_back(argument);
  plan.launch = plan::launch_line(recipe.world_size, line.program, arguments);
  return plan;
}

void dry_run(const CommandLine& line) {
  const recipe::Recipe recipe = load_checked(line, false);
  print(plan::to_text(make_plan(line, recipe)));
  for (const Problem& problem : recipe.problems)
    if (problem.severity == Severity::plan_only)
      log_warning("a run of this recipe is refused: " + to_string(problem));
}

// The same recipe must have been read everywhere; a stale copy on one node is found here.
void check_same_config(comm::Communicator& world, const plan::Plan& plan) {
  const std::uint64_t own = hash64(plan.config_yaml);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  for (int rank = 0; rank < world.size(); ++rank)
    if (all[static_cast<std::size_t>(rank)] != all[0])
      throw UsageError(
          Problem{.key = "--recipe",
                  .what = fmt::format("rank {} resolved another configuration than rank 0.", rank),
                  .remedy = "Start all ranks with the same arguments on the same recipe files."});
}

bool wants_progress_bar(const comm::World& world) {
  return world.size() == 1 && !comm::launched() && isatty(STDERR_FILENO) == 1;
}

int train_recipe(const CommandLine& line, comm::World& world) {
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const std::unique_ptr<comm::Communicator> group = world.make_group(everyone);
  plan::Plan plan;
  try {
    train::together(*group, [&] {
      CommandLine own = line;
      own.request.world_size = world.size();
      plan = make_plan(own, load_checked(own, true));
    });
    train::together(*group, [&] { check_same_config(*group, plan); });
  } catch (const train::JobFailed& failed) {
    return failed.exit_code;
  }
  return train::run(plan, world, {.progress_bar = wants_progress_bar(world)});
}

// Everything but training: needs one process and touches no rank.
void answer(const CommandLine& line) {
  switch (line.action) {
    case Action::help:
      print(help_text());
      break;
    case Action::version:
      print(version_text());
      break;
    case Action::list_recipes:
      print(recipe_list(recipe::list_recipes(recipe::default_search_paths())));
      break;
    case Action::explain: {
      if (line.request.recipe.empty()) {
        print(recipe::explain(line.explain_key));
      } else {
        const recipe::Recipe recipe = recipe::load(line.request);
        print(recipe::explain(line.explain_key, &recipe));
      }
      break;
    }
    case Action::print_config: {
      const recipe::Recipe recipe = load_checked(line, false);
      print(recipe::dump(recipe.config, &recipe));
      break;
    }
    case Action::print_launch:
      print(make_plan(line, load_checked(line, false)).launch);
      break;
    case Action::validate: {
      load_checked(line, true);
      print("ok");
      break;
    }
    case Action::dry_run:
      dry_run(line);
      break;
    case Action::data_build: {
      const data::BuildReport report = data::build_bytes(line.inputs, line.output_prefix);
      print(fmt::format("wrote {} and {}: {} documents, {} tokens", report.bin, report.idx,
                        format_count(report.documents), format_count(report.tokens)));
      break;
    }
    case Action::train:
      break;
  }
}

int run(const std::string& program, const std::vector<std::string>& arguments, comm::World& world) {
  if (arguments.empty()) {
    if (world.rank() == 0) std::fputs(help_text().c_str(), stderr);
    return 2;
  }
  CommandLine line;
  try {
    line = parse(arguments);
    line.program = program;
    if (line.dump_env && world.rank() == 0)
      for (char** entry = environ; *entry != nullptr; ++entry) print(*entry);
    if (line.action != Action::train) {
      if (world.rank() == 0) answer(line);
      return 0;
    }
  } catch (const UsageError& error) {
    // Every rank has the same arguments and comes to the same answer: one speaks.
    if (world.rank() == 0) log_error(error.what());
    return 2;
  }
  return train_recipe(line, world);
}

// Ends the job when one rank alone has failed: its peers wait for it in some collective.
int end_alone(comm::World& world, const std::string& message, int code) {
  log_error(world.size() > 1 ? fmt::format("rank {}: {}", world.rank(), message) : message);
  if (world.size() > 1) world.abort(code);
  return code;
}

}  // namespace
}  // namespace rr::app

int main(int argc, char** argv) {
  using namespace rr;
  std::setlocale(LC_ALL, "C");
  train::install_signal_handlers();
  std::unique_ptr<comm::World> world;
  try {
    world = comm::launched() ? comm::make_mpi_world() : comm::make_self_world();
    const char* no_colour = std::getenv("NO_COLOR");
    start_logging(world->rank(), world->size(),
                  !comm::launched() && isatty(STDERR_FILENO) == 1 &&
                      (no_colour == nullptr || *no_colour == '\0'));
    return app::run(argv[0], {argv + 1, argv + argc}, *world);
  } catch (const UsageError& error) {
    return world ? app::end_alone(*world, error.what(), 2) : 2;
  } catch (const std::exception& error) {
    if (world) return app::end_alone(*world, std::string("error: ") + error.what(), 1);
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
