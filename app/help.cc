// --help and --help-all.
#include "app/help.h"

#include <fmt/format.h>

#include "app/options.h"
#include "app/terminal.h"
#include "base/text.h"

namespace rr::app {
namespace {

constexpr Section kSections[] = {Section::recipe, Section::action, Section::plan, Section::key,
                                 Section::about};

std::string usage() {
  std::string text =
      "run_recipe trains GPT and mixture-of-experts models from a recipe.\n\n"
      "usage: run_recipe --recipe NAME|FILE [options] [key=value ...]\n";
  for (const Command& command : commands())
    text += fmt::format("       run_recipe {}\n", command.usage);
  return text;
}

// "-tp, --tensor_model_parallel_size N"
std::string all_spellings(const Option& option) {
  const std::string value = *option.shown ? fmt::format(" {}", option.shown) : "";
  return "  " + join(spellings(option), ", ") + value;
}

// The shortest way to write it: "-tp N", "--dry-run".
std::string short_spelling(const Option& option) {
  const bool has_dash = option.section == Section::key && *option.dash;
  const std::string value = *option.shown ? fmt::format(" {}", option.shown) : "";
  return (has_dash ? option.dash : option.name) + value;
}

std::string lines_text(std::span<const Line> lines, int column, int width) {
  std::string text;
  for (const Line& line : lines)
    text += two_columns(std::string("  ") + line.what, line.help, column, width);
  return text;
}

// Flags for keys stand in a block without explanation: their names say it.
std::string key_block(int width) {
  std::string text;
  for (const Option& option : options()) {
    if (option.section != Section::key) continue;
    std::string word = short_spelling(option);
    for (char& c : word)
      if (c == ' ') c = '\t';  // kept together by wrap
    text += (text.empty() ? "" : " ") + word;
  }
  text = "  " + wrap(text, 2, 2, width) + '\n';
  for (char& c : text)
    if (c == '\t') c = ' ';
  return text;
}

}  // namespace

std::string help_text(int width) {
  std::string text = usage() + "\nexamples\n" + lines_text(examples(), 62, width);
  for (const Section section : kSections) {
    text += fmt::format("\n{}\n", title_of(section));
    if (section == Section::key) {
      text += key_block(width);
      continue;
    }
    for (const Option& option : options())
      if (option.section == section && option.common)
        text += two_columns("  " + short_spelling(option), option.help, 24, width);
  }
  return text;
}

std::string help_all_text(int width) {
  constexpr int kColumn = 30;
  std::string text = usage();
  text += "\ncommands\n";
  for (const Command& command : commands())
    text += two_columns(std::string("  ") + command.usage, command.help, kColumn, width);
  for (const Section section : kSections) {
    text += fmt::format("\n{}\n", title_of(section));
    for (const Option& option : options())
      if (option.section == section)
        text += two_columns(all_spellings(option), option.help, kColumn, width);
  }
  text += "\noverrides\n" + lines_text(override_forms(), kColumn, width);
  text += "\nenvironment\n" + lines_text(environment(), kColumn, width);
  text += "\nexit codes\n" + lines_text(exit_codes(), kColumn, width);
  return text;
}

}  // namespace rr::app
