// The command line: argv in, a CommandLine out. Megatron Bridge's spellings (-tp 2, --max_steps
// ...) are accepted as they are; no abbreviations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace rr::app {

enum class Action {
  train,
  dry_run,
  print_config,
  print_launch,
  validate,
  list_recipes,
  explain,
  version,
  help,
  data_build,
};

struct CommandLine {
  Action action = Action::train;
  recipe::Request request;
  std::string explain_key;
  std::string machine = "h100_sxm";  // for plans
  bool json = false;
  bool dump_env = false;
  std::vector<std::string> inputs;  // data build
  std::string output_prefix;
  std::string program = "run_recipe";  // how this program was started
  std::vector<std::string> arguments;  // as given, for the launch line
};

// Throws UsageError with all that is wrong.
CommandLine parse(const std::vector<std::string>& arguments);

// One screen.
std::string help_text();

}  // namespace rr::app
