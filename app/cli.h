// The command line: arguments in, a CommandLine out. Megatron Bridge's spellings (-tp 2,
// --max_steps ...) are accepted as they are; no abbreviations. Presence decides, not truth: zero
// and empty text are values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace rr::app {

enum class Action : std::uint8_t {
  train,
  dry_run,
  print_config,
  print_launch,
  validate,
  list_recipes,
  explain,
  measure_machine,
  version,
  help,
  help_all,
  data_build,
  completion,
  man,
};

enum class Colour : std::uint8_t { automatic, always, never };

struct CommandLine {
  Action action = Action::train;
  recipe::Request request;
  std::string explain_key;
  std::string machine = "h100_sxm";  // for plans
  bool machine_is_default = true;
  std::string machine_file;  // --measure-machine
  bool json = false;
  bool dump_env = false;
  Colour colour = Colour::automatic;
  std::vector<std::string> inputs;         // data build
  std::string output_prefix;               // data build
  std::string shell;                       // completion
  std::string program = "run_recipe";      // how this program was started
  std::vector<std::string> run_arguments;  // those a run takes, for the launch line
  std::vector<Problem> warnings;
};

// Throws UsageError with all that is wrong.
CommandLine parse(const std::vector<std::string>& arguments);

// Whether a mistake in `arguments` is to be told in JSON: they are not parsed yet.
bool wants_json(const std::vector<std::string>& arguments);

}  // namespace rr::app
