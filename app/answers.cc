// Answers to the questions of the command line.
#include "app/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "app/completion.h"
#include "app/help.h"
#include "app/json.h"
#include "app/machine_file.h"
#include "app/man.h"
#include "app/prepare.h"
#include "app/terminal.h"
#include "app/version.h"
#include "base/log.h"
#include "base/text.h"
#include "data/data.h"
#include "plan/planner.h"

extern char** environ;

namespace rr::app {
namespace {

constexpr int kPipedWidth = 100;  // of text that is not for a terminal
constexpr int kWidest = 120;      // longer lines are hard to read

int text_width(bool launched) {
  const int width = terminal_width(launched);
  return width == 0 ? kPipedWidth : std::min(width, kWidest);
}

std::string versions_text() {
  std::string text;
  for (const auto& [name, version] : versions()) text += fmt::format("{} {}\n", name, version);
  return text;
}

std::vector<RecipeRow> recipe_rows(const std::vector<std::string>& search_paths) {
  std::vector<RecipeRow> rows;
  for (const recipe::RecipeInfo& info : recipe::list_recipes(search_paths)) {
    recipe::Request request;
    request.recipe = info.file;
    request.search_paths = search_paths;
    recipe::Recipe recipe = recipe::load(request);
    // A fraction of auto would ask for a machine, and what is offloaded is counted all the same.
    recipe.config.optimizer.optimizer_cpu_offload = false;
    RecipeRow row{.info = info,
                  .model = recipe.config.model.preset.value_or(""),
                  .parameters = std::nullopt,
                  .ranks = recipe.world_size,
                  .precision = recipe::value_text(recipe.config, "mixed_precision")};
    if (!recipe.has_errors())
      row.parameters = plan::make_plan(recipe, recipe::Machine{}).total_parameters;
    rows.push_back(std::move(row));
  }
  return rows;
}

// 30532122624 -> "30.5 B".
std::string short_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.1f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::format("{:.0f} K", value / 1e3);
}

// One line a recipe; on a terminal no longer than its lines.
std::string recipes_text(const std::vector<RecipeRow>& rows, int width) {
  std::size_t name_width = 0;
  for (const RecipeRow& row : rows) name_width = std::max(name_width, row.info.name.size());
  std::string text;
  for (const RecipeRow& row : rows) {
    const std::string parameters = row.parameters ? short_count(*row.parameters) : "errors";
    std::string line =
        fmt::format("{:<{}}  {:>8}  {:>3} {:<5}  {:<10}  {}", row.info.name, name_width, parameters,
                    row.ranks, row.ranks == 1 ? "rank" : "ranks", row.precision, row.info.summary);
    if (width > 0 && std::ssize(line) > width) line.resize(static_cast<std::size_t>(width));
    text += line + '\n';
  }
  return text;
}

int validate(const CommandLine& line) {
  if (!line.json) {
    load_checked(line, true);
    print("ok");
    return 0;
  }
  const recipe::Recipe recipe = recipe::load(line.request);
  const bool ok = fatal(recipe.problems, true).empty();
  print(validate_json(recipe, ok));
  return ok ? 0 : 2;
}

int dry_run(const CommandLine& line) {
  if (line.json) {
    const recipe::Recipe recipe = recipe::load(line.request);
    if (recipe.has_errors()) throw UsageError(recipe.problems);
    print(dry_run_json(recipe, recipe::load_machine(line.machine, line.request.search_paths),
                       make_plan(line, recipe)));
    return 0;
  }
  const recipe::Recipe recipe = load_checked(line, false);
  std::string text = plan::to_text(make_plan(line, recipe));
  if (line.machine_is_default)
    text += fmt::format("\n{} is the default machine; others: --machine {} or a file", line.machine,
                        join(recipe::list_machines(line.request.search_paths), ", "));
  print(text);
  for (const Problem& problem : recipe.problems)
    if (problem.severity == Severity::plan_only)
      log_warning("a run of this recipe is refused: " + to_string(problem));
  return 0;
}

void explain(const CommandLine& line) {
  if (line.request.recipe.empty()) {
    print(recipe::explain(line.explain_key));
    return;
  }
  const recipe::Recipe recipe = recipe::load(line.request);
  print(recipe::explain(line.explain_key, &recipe));
}

void print_config(const CommandLine& line) {
  const recipe::Recipe recipe = load_checked(line, false);
  print(recipe::dump(recipe.config, &recipe));
}

void build_data(const CommandLine& line) {
  const data::BuildReport report = data::build_bytes(line.inputs, line.output_prefix);
  print(fmt::format("wrote {} and {}: {} documents, {} tokens", report.bin, report.idx,
                    format_count(report.documents), format_count(report.tokens)));
}

bool is_secret(const std::string& name) {
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* part : {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY",
                           "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"})
    if (upper.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

int answer(const CommandLine& line, bool launched) {
  const std::vector<std::string> paths = recipe::default_search_paths();
  switch (line.action) {
    case Action::help:
      print(help_text(text_width(launched)));
      break;
    case Action::help_all:
      print(help_all_text(text_width(launched)));
      break;
    case Action::version:
      print(line.json ? versions_json() : versions_text());
      break;
    case Action::list_recipes:
      print(line.json ? recipes_json(recipe_rows(paths))
                      : recipes_text(recipe_rows(paths), terminal_width(launched)));
      break;
    case Action::explain:
      explain(line);
      break;
    case Action::print_config:
      print_config(line);
      break;
    case Action::print_launch:
      print(make_plan(line, load_checked(line, false)).launch);
      break;
    case Action::validate:
      return validate(line);
    case Action::dry_run:
      return dry_run(line);
    case Action::data_build:
      build_data(line);
      break;
    case Action::completion:
      print(completion_script(line.shell, completion_words(paths)));
      break;
    case Action::man:
      print(man_page());
      break;
    case Action::measure_machine:
      print(write_machine_file(line.machine_file));
      break;
    case Action::train:
      RR_CHECK(false, "training is no answer");
  }
  return 0;
}

void dump_environment() {
  std::set<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    lines.insert(is_secret(name) ? name + "=(hidden)" : text);
  }
  for (const std::string& text : lines) log_info(text);
}

}  // namespace rr::app
