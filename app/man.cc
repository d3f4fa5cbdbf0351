// The man page in the macros of man(7).
#include "app/man.h"

#include <fmt/format.h>

#include "app/options.h"
#include "app/version.h"
#include "base/text.h"

namespace rr::app {
namespace {

// Text that roff shows as it is. A minus sign is one that can be copied into a shell.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
  }
  // A dot at the start of a line would be a request.
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string entry(const std::string& term, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", term, roff(text));
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }

std::string option_entry(const Option& option) {
  std::vector<std::string> terms;
  for (const std::string& spelling : spellings(option)) terms.push_back(bold(spelling));
  std::string term = join(terms, ", ");
  if (*option.shown) term += fmt::format(" \\fI{}\\fR", roff(option.shown));
  std::string text = option.help;
  if (*option.key) text += fmt::format(" Stands for {}.", option.key);
  if (*option.words) text += fmt::format(" One of {}.", join(words_of(option), ", "));
  return entry(term, text);
}

std::string lines(std::span<const Line> all) {
  std::string text;
  for (const Line& line : all) text += entry(bold(line.what), line.help);
  return text;
}

}  // namespace

std::string man_page() {
  const auto [program, version] = versions().front();
  std::string text = fmt::format(
      ".TH RUN_RECIPE 1 \"\" \"{} {}\" \"User Commands\"\n.SH NAME\n"
      "run_recipe \\- train GPT and mixture\\-of\\-experts models from a recipe\n.SH SYNOPSIS\n"
      ".B run_recipe\n\\-\\-recipe \\fINAME\\fR|\\fIFILE\\fR [options] [\\fIkey=value\\fR ...]\n",
      program, version);
  for (const Command& command : commands())
    text += fmt::format(".br\n.B run_recipe\n{}\n", roff(command.usage));
  text +=
      ".SH DESCRIPTION\n"
      "Trains from one YAML recipe plus overrides, on as many ranks as mpirun starts. Before "
      "anything is started the recipe is resolved and checked, and every mistake is told at "
      "once, with a value that works. Plans need no GPU, no launch and no data.\n.SH COMMANDS\n";
  for (const Command& command : commands()) text += entry(bold(command.usage), command.help);
  text += ".SH OPTIONS\nOptions have no abbreviations; the last of one given twice counts.\n";
  for (const Section section :
       {Section::recipe, Section::action, Section::plan, Section::key, Section::about}) {
    text += fmt::format(".SS \"{}\"\n", roff(title_of(section)));
    for (const Option& option : options())
      if (option.section == section) text += option_entry(option);
  }
  text +=
      ".SH OVERRIDES\nArguments without a dash change the recipe, from left to right, and beat "
      "flags. Keys are explained by\n.BR \"run_recipe \\-\\-explain\" .\n" +
      lines(override_forms());
  text += ".SH ENVIRONMENT\n" + lines(environment());
  text += ".SH \"EXIT STATUS\"\n" + lines(exit_codes());
  text += ".SH EXAMPLES\n" + lines(examples());
  return text;
}

}  // namespace rr::app
