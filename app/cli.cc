// Command-line parsing: CLI11 over the table of options.h.
//
// Policy: every argument is used or refused, and all mistakes are told at once.
#include "app/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "app/cli_commands.h"
#include "app/options.h"
#include "base/base.h"
#include "base/text.h"

namespace rr::app {
namespace {

constexpr int kMostRanks = 1 << 30;
// What CLI11 sees for an empty value, and tells for an option without one.
const std::string kEmpty = "\x01empty";
const std::string kNoValue = "\x01none";

bool is_number(const std::string& text) {
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  if (text.size() <= sign) return false;
  return std::isdigit(static_cast<unsigned char>(text[sign])) != 0 || text[sign] == '.';
}

// Options are not to be abbreviated, so a beginning is a likely mistake: it comes first.
std::vector<std::string> likely_options(const std::string& name) {
  if (!name.starts_with("--")) return {};
  std::vector<std::string> known, begun;
  for (const Option& option : options()) {
    for (const std::string& spelling : spellings(option)) {
      known.push_back(spelling);
      if (spelling == option.name && spelling.starts_with(name)) begun.push_back(spelling);
    }
  }
  return begun.empty() || begun.size() > 3 ? nearest(name, known) : begun;
}

Problem unknown_option(const std::string& name) {
  const std::vector<std::string> likely = likely_options(name);
  std::string remedy = "See run_recipe --help-all.";
  if (!likely.empty()) remedy = "Did you mean " + join(likely, " or ") + "?";
  if (name.find('.') != std::string::npos)
    remedy = "Overrides have no dashes: " + name.substr(name.find_first_not_of('-')) + "=VALUE.";
  return argument_problem(name, "Unknown option: " + name + ".", remedy);
}

Problem no_override(const std::string& token) {
  return argument_problem(token, "Expected override in KEY=VALUE form, got " + token + ".",
                          "Write " + token + "=VALUE; a recipe goes after --recipe.");
}

// The action that an option asks for.
std::optional<Action> action_of(Id id) {
  switch (id) {
    case Id::dry_run:
      return Action::dry_run;
    case Id::validate:
      return Action::validate;
    case Id::print_config:
      return Action::print_config;
    case Id::print_launch:
      return Action::print_launch;
    case Id::list_recipes:
      return Action::list_recipes;
    case Id::explain:
      return Action::explain;
    case Id::measure_machine:
      return Action::measure_machine;
    case Id::version:
      return Action::version;
    case Id::help:
      return Action::help;
    case Id::help_all:
      return Action::help_all;
    case Id::recipe:
    case Id::model:
    case Id::mode:
    case Id::dataset:
    case Id::step_function:
    case Id::key:
    case Id::world_size:
    case Id::machine:
    case Id::json:
    case Id::colour:
    case Id::dump_env:
      return std::nullopt;
  }
  return std::nullopt;
}

// Whether `action` reads a recipe: it must, it may, it must not.
enum class Need : std::uint8_t { must, may, must_not };

Need recipe_need(Action action) {
  switch (action) {
    case Action::train:
    case Action::dry_run:
    case Action::print_config:
    case Action::print_launch:
    case Action::validate:
      return Need::must;
    case Action::explain:
      return Need::may;
    case Action::list_recipes:
    case Action::measure_machine:
    case Action::version:
    case Action::help:
    case Action::help_all:
    case Action::data_build:
    case Action::completion:
    case Action::man:
      return Need::must_not;
  }
  return Need::must_not;
}

class Parser {
 public:
  CommandLine parse(const std::vector<std::string>& arguments) {
    line_.request.search_paths = recipe::default_search_paths();
    read(arguments);
    // Who asks for help gets it, whatever else is wrong.
    if (line_.action == Action::help || line_.action == Action::help_all) return line_;
    name_recipe();
    check_uses();
    if (!problems_.empty()) throw UsageError(problems_);
    return line_;
  }

 private:
  // CLI11 reads the options of the table; what it leaves are overrides and mistakes.
  void read(const std::vector<std::string>& arguments) {
    CLI::App app;
    app.allow_extras();
    app.set_help_flag();
    std::map<const CLI::Option*, const Option*> rows;
    for (const Option& option : options()) {
      CLI::Option* known = option.value == Value::none
                               ? app.add_flag(option.name)
                               : app.add_option(option.name)->expected(0, 1)->default_str(kNoValue);
      rows[known->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)] = &option;
    }
    std::vector<std::string> words = with_table_names(arguments);
    std::reverse(words.begin(), words.end());
    try {
      app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      problems_.push_back(argument_problem("", error.what(), "See run_recipe --help-all."));
      return;
    }
    std::map<const CLI::Option*, std::size_t> seen;
    for (const CLI::Option* known : app.parse_order()) {
      const std::size_t nth = seen[known]++;
      take_option(*rows.at(known), nth, known->results().at(nth));
    }
    take_rest(app.remaining());
  }

  // Spellings that CLI11 cannot read (-tp, a negative number as a value, an empty one) in a form
  // that it can, under the table's name; notes what was typed.
  std::vector<std::string> with_table_names(const std::vector<std::string>& arguments) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string& token = arguments[i];
      const std::size_t equals = token.starts_with('-') ? token.find('=') : std::string::npos;
      const std::string name = token.substr(0, equals);
      const Option* option = find_option(name);
      if (option == nullptr) {
        words.push_back(token);
        continue;
      }
      const bool takes_value = option->value != Value::none;
      if (!takes_value && equals != std::string::npos) {
        problems_.push_back(argument_problem(name, "takes no value.", "Write " + name + "."));
        continue;
      }
      typed_[option].push_back(name);
      std::string word = option->name;
      if (equals != std::string::npos) {
        const std::string value = token.substr(equals + 1);
        word += "=" + (value.empty() ? kEmpty : value);
      } else if (takes_value && i + 1 < arguments.size() &&
                 (arguments[i + 1].empty() ||
                  (arguments[i + 1].starts_with('-') && is_number(arguments[i + 1])))) {
        const std::string& value = arguments[++i];
        word += "=" + (value.empty() ? kEmpty : value);
      }
      words.push_back(word);
    }
    return words;
  }

  void take_option(const Option& option, std::size_t nth, const std::string& result) {
    const std::string& name = typed_.at(&option).at(nth);
    std::optional<std::string> value;
    if (option.value != Value::none && result != kNoValue) value = result == kEmpty ? "" : result;
    set(option, name, value);
    if (option.section == Section::action || option.section == Section::plan) return;
    line_.run_arguments.push_back(name);
    if (value) line_.run_arguments.push_back(*value);
  }

  // Overrides, and unknown options with what follows them, which is more likely their value than an
  // override.
  void take_rest(const std::vector<std::string>& rest) {
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::string& token = rest[i];
      const bool has_value = token.find('=') != std::string::npos;
      if (token.starts_with('-')) {
        problems_.push_back(unknown_option(token.substr(0, token.find('='))));
        if (!has_value && i + 1 < rest.size() && !rest[i + 1].starts_with('-') &&
            rest[i + 1].find('=') == std::string::npos)
          ++i;
        continue;
      }
      if (!has_value && !token.starts_with('~')) problems_.push_back(no_override(token));
      line_.request.overrides.push_back(token);
      line_.run_arguments.push_back(token);
    }
  }

  void set(const Option& option, const std::string& name, const std::optional<std::string>& value) {
    if (option.value != Value::none && (!value || (value->empty() && option.id != Id::key))) {
      problems_.push_back(argument_problem(
          name, "needs a value.", fmt::format("Write {} {}. {}", name, option.shown, option.help)));
      return;
    }
    if (option.value == Value::words && !is_word(option, *value)) return;
    note_repetition(option, name, value.value_or(""));
    if (const std::optional<Action> action = action_of(option.id)) take_action(*action, name);
    keep(option, name, value.value_or(""));
  }

  bool is_word(const Option& option, const std::string& value) {
    const std::vector<std::string> words = words_of(option);
    if (std::find(words.begin(), words.end(), value) != words.end()) return true;
    const std::string remedy =
        option.id == Id::dataset
            ? "Use --dataset mock, or dataset.data_path=PREFIX for .bin/.idx files."
            : fmt::format("Use {} {}.", option.name, join(words, ", "));
    problems_.push_back(argument_problem(
        option.name, fmt::format("'{}' is not one of {}.", value, join(words, ", ")), remedy));
    return false;
  }

  void note_repetition(const Option& option, const std::string& name, const std::string& value) {
    const auto [place, is_new] = given_.emplace(&option, value);
    if (is_new) return;
    if (place->second != value) {
      Problem warning =
          argument_problem(name, fmt::format("is given twice; the last, {}, counts", value), "");
      warning.severity = Severity::warning;
      line_.warnings.push_back(warning);
    }
    place->second = value;
  }

  void take_action(Action action, const std::string& name) {
    const bool had_help = line_.action == Action::help || line_.action == Action::help_all;
    if (had_help) return;
    if (!action_name_.empty() && action != line_.action && action != Action::help &&
        action != Action::help_all) {
      problems_.push_back(
          argument_problem(name, fmt::format("{} and {} exclude each other.", action_name_, name),
                           "Give one of them."));
    }
    line_.action = action;
    action_name_ = name;
  }

  // Where the value of an option goes.
  void keep(const Option& option, const std::string& name, const std::string& value) {
    switch (option.id) {
      case Id::key:
        line_.request.flags.push_back(
            {name, option.key, option.value == Value::none ? "true" : value});
        break;
      case Id::dataset:
        for (const char* key : {"dataset.blend", "dataset.blend_per_split", "dataset.data_path"})
          line_.request.flags.push_back({name, key, "null"});
        break;
      case Id::explain:
        line_.explain_key = value;
        break;
      case Id::measure_machine:
        line_.machine_file = value;
        break;
      case Id::machine:
        line_.machine = value;
        line_.machine_is_default = false;
        break;
      case Id::world_size:
        keep_world_size(value);
        break;
      case Id::json:
        line_.json = true;
        break;
      case Id::dump_env:
        line_.dump_env = true;
        break;
      case Id::colour:
        line_.colour = value == "always"  ? Colour::always
                       : value == "never" ? Colour::never
                                          : Colour::automatic;
        break;
      case Id::recipe:
      case Id::model:
      case Id::mode:
      case Id::step_function:
      case Id::dry_run:
      case Id::validate:
      case Id::print_config:
      case Id::print_launch:
      case Id::list_recipes:
      case Id::version:
      case Id::help:
      case Id::help_all:
        break;  // an action, or looked at when all are known
    }
  }

  void keep_world_size(const std::string& value) {
    int ranks = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, ranks);
    if (error != std::errc() || stop != end || ranks < 1 || ranks > kMostRanks) {
      problems_.push_back(argument_problem("--world-size",
                                           fmt::format("'{}' is no number of ranks.", value),
                                           "Use a whole number of at least 1."));
      return;
    }
    line_.request.world_size = ranks;
  }

  std::string value_of(Id id) const {
    const auto found = given_.find(&option_of(id));
    return found == given_.end() ? "" : found->second;
  }

  // The recipe's name from --recipe, or from --model and --mode.
  void name_recipe() {
    const std::string recipe = value_of(Id::recipe), model = value_of(Id::model);
    std::string mode = value_of(Id::mode);
    if (!recipe.empty() && !model.empty())
      problems_.push_back(argument_problem("--model", "--recipe and --model exclude each other.",
                                           "Give one of them."));
    if (!recipe.empty() || model.empty()) {
      line_.request.recipe = recipe;
      if (!recipe.empty() && !mode.empty()) check_mode(recipe, mode);
      return;
    }
    if (mode.empty())
      problems_.push_back(argument_problem(
          "--mode",
          "Unable to infer training mode; pass --mode or use a conventional --recipe name.",
          "Use --mode pretrain."));
    if (mode == "lora" || mode == "dora") mode = "peft";
    line_.request.recipe = model + "_" + mode;
  }

  // A mode beside a recipe may only say what the recipe's name says.
  void check_mode(const std::string& recipe, const std::string& mode) {
    const std::string stem = std::filesystem::path(recipe).stem().string();
    const bool pretrain = stem.find("pretrain") != std::string::npos;
    const bool peft = stem.find("peft") != std::string::npos;
    const bool sft = stem.find("sft") != std::string::npos;
    if (!pretrain && !peft && !sft) {
      if (mode == "pretrain") return;
      problems_.push_back(argument_problem(
          "--mode", fmt::format("nothing in {} is changed by --mode {}.", recipe, mode),
          "Leave it out; the recipe says what it trains."));
    } else if ((mode == "pretrain" && !pretrain) || (mode == "sft" && !sft) ||
               ((mode == "lora" || mode == "dora") && !peft)) {
      problems_.push_back(argument_problem(
          "--mode", fmt::format("--mode {} contradicts the recipe {}.", mode, recipe),
          "Leave --mode out, or name another recipe."));
    }
  }

  void check_uses() {
    const bool about_recipe = !line_.request.recipe.empty() || !line_.request.flags.empty() ||
                              !line_.request.overrides.empty();
    const Need need = recipe_need(line_.action);
    if (need == Need::must_not && about_recipe)
      problems_.push_back(argument_problem(action_name_, action_name_ + " reads no recipe.",
                                           "Leave recipe, flags and overrides out."));
    if (line_.request.recipe.empty() && value_of(Id::recipe).empty() &&
        (need == Need::must || (need == Need::may && about_recipe)))
      problems_.push_back(
          argument_problem("--recipe", "no recipe given.",
                           "Use --recipe NAME; run_recipe --list-recipes shows the names."));
    const Action action = line_.action;
    const bool is_planned =
        action == Action::dry_run || action == Action::print_launch || action == Action::train;
    if (given_.contains(&option_of(Id::machine)) && !is_planned)
      problems_.push_back(
          argument_problem("--machine", "is for plans only.", "Use it with --dry-run."));
    if (given_.contains(&option_of(Id::world_size)) &&
        (action == Action::train || need == Need::must_not))
      problems_.push_back(
          argument_problem("--world-size", "is for plans only.",
                           "Add --dry-run; a run has the ranks that mpirun -n N starts."));
    if (line_.json && !is_json(action))
      problems_.push_back(
          argument_problem("--json", "this answer has no JSON form.",
                           "Use it with --dry-run, --validate, --list-recipes or --version."));
  }

  static bool is_json(Action action) {
    return action == Action::dry_run || action == Action::validate ||
           action == Action::list_recipes || action == Action::version;
  }

  CommandLine line_;
  std::map<const Option*, std::vector<std::string>> typed_;  // the spellings, in order
  std::map<const Option*, std::string> given_;               // the last value
  std::string action_name_;
  std::vector<Problem> problems_;
};

}  // namespace

CommandLine parse(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "" : arguments[0];
  for (const Command& command : commands())
    if (first == command.name) return parse_command(arguments);
  return Parser().parse(arguments);
}

bool wants_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

}  // namespace rr::app
