// Parses, then answers on rank 0 or trains on all ranks.
#include "app/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>
#include <span>

#include "app/answers.h"
#include "app/cli.h"
#include "app/help.h"
#include "app/json.h"
#include "app/prepare.h"
#include "app/terminal.h"
#include "base/log.h"
#include "base/random.h"
#include "train/train.h"

namespace rr::app {
namespace {

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
      plan = make_plan(own, load_checked(own, true, world.rank() == 0));
    });
    train::together(*group, [&] { check_same_config(*group, plan); });
  } catch (const train::JobFailed& failed) {
    return failed.exit_code;
  }
  return train::run(plan, world, {.progress_bar = wants_progress_bar(world)});
}

}  // namespace

int run(const std::string& program, const std::vector<std::string>& arguments, comm::World& world) {
  const bool speaks = world.rank() == 0;
  if (arguments.empty()) {
    if (speaks) std::fputs(help_text(80).c_str(), stderr);
    return 2;
  }
  CommandLine line;
  try {
    line = parse(arguments);
    line.program = program;
    start_logging(world.rank(), world.size(), wants_colour(line.colour, comm::launched()));
    if (speaks)
      for (const Problem& warning : line.warnings) log_warning(to_string(warning));
    if (speaks && line.dump_env && line.action != Action::print_launch) dump_environment();
    if (line.action != Action::train) return speaks ? answer(line, comm::launched()) : 0;
  } catch (const UsageError& error) {
    // Every rank has the same arguments and comes to the same answer: one speaks.
    if (speaks && wants_json(arguments)) {
      print(problems_json(error.problems()));
    } else if (speaks) {
      log_error(error.what());
    }
    return 2;
  }
  return train_recipe(line, world);
}

}  // namespace rr::app
