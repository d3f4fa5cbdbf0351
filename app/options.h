// The options and commands of the command line as one table; parsing, --help, the completion
// scripts and the man page are all made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rr::app {

// What an option does. `key`: it stands for a key of the recipe.
enum class Id : std::uint8_t {
  recipe,
  model,
  mode,
  dataset,
  step_function,
  key,
  dry_run,
  validate,
  print_config,
  print_launch,
  world_size,
  machine,
  json,
  list_recipes,
  explain,
  measure_machine,
  version,
  help,
  help_all,
  colour,
  dump_env,
};

enum class Section : std::uint8_t { recipe, action, plan, key, about };

// What may follow an option, for completion.
enum class Value : std::uint8_t { none, number, recipe, model, machine, key, words, file, folder };

struct Option {
  Id id;
  Section section;
  bool common;        // shown by --help; the others by --help-all only
  const char* dash;   // "-tp"; may be empty
  const char* name;   // "--tensor_model_parallel_size"
  const char* other;  // a second long spelling; may be empty
  Value value;
  const char* shown;  // the value's name in help, "N"; empty for Value::none
  const char* words;  // Value::words: the allowed ones, "a|b"
  const char* key;    // Id::key: the key; without a value it becomes true
  const char* help;   // one sentence, no line end
};

std::span<const Option> options();
// By any of its spellings; null pointer for an unknown one.
const Option* find_option(std::string_view spelling);
// The option that does `id`; not for Id::key.
const Option& option_of(Id id);
// "-tp", "--tensor_model_parallel_size", ...: dash first.
std::vector<std::string> spellings(const Option& option);
// "a|b" -> a, b.
std::vector<std::string> words_of(const Option& option);
const char* title_of(Section section);

// Commands: the first argument, without dashes.
struct Command {
  const char* name;
  const char* usage;  // behind "run_recipe "
  const char* words;  // what may follow it, "a|b"
  const char* help;
};
std::span<const Command> commands();

// Further things that the program listens to and tells.
struct Line {
  const char* what;
  const char* help;
};
std::span<const Line> environment();
std::span<const Line> exit_codes();
std::span<const Line> override_forms();
std::span<const Line> examples();

}  // namespace rr::app
