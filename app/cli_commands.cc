// Parses data build, completion and man.
#include "app/cli_commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/base.h"

namespace rr::app {
namespace {

CommandLine parse_completion(const std::vector<std::string>& arguments) {
  CommandLine line;
  line.action = Action::completion;
  const bool known = arguments.size() == 2 &&
                     (arguments[1] == "bash" || arguments[1] == "zsh" || arguments[1] == "fish");
  if (!known)
    throw UsageError(argument_problem("completion", "needs the name of one shell.",
                                      "Use run_recipe completion bash, zsh or fish."));
  line.shell = arguments[1];
  return line;
}

CommandLine parse_man(const std::vector<std::string>& arguments) {
  CommandLine line;
  line.action = Action::man;
  if (arguments.size() > 1)
    throw UsageError(argument_problem("man", "takes no arguments.", "Use run_recipe man."));
  return line;
}

CommandLine parse_data(std::vector<std::string> arguments) {
  const std::string usage = "Use run_recipe data build --input FILE... --output PREFIX.";
  CommandLine line;
  line.action = Action::data_build;
  if (arguments.size() < 2 || arguments[1] != "build")
    throw UsageError(argument_problem("data", "has one command, build.", usage));
  CLI::App app;
  app.allow_extras();
  app.set_help_flag();
  app.add_option("--input,inputs", line.inputs);
  app.add_option("--output", line.output_prefix);
  arguments.erase(arguments.begin(), arguments.begin() + 2);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    throw UsageError(argument_problem("", error.what(), usage));
  }
  std::vector<Problem> problems;
  for (const std::string& name : app.remaining())
    problems.push_back(argument_problem(name, "Unknown option: " + name + ".", usage));
  if (line.inputs.empty())
    problems.push_back(
        argument_problem("--input", "no input file.", "Name at least one text file."));
  if (line.output_prefix.empty())
    problems.push_back(argument_problem("--output", "no output prefix.",
                                        "Name the path of the .bin and .idx without ending."));
  if (!problems.empty()) throw UsageError(problems);
  return line;
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h" || argument == "--help-all";
  });
}

}  // namespace

Problem argument_problem(const std::string& key, const std::string& what,
                         const std::string& remedy) {
  return {.key = key, .where = "command line", .what = what, .remedy = remedy};
}

CommandLine parse_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    CommandLine line;
    line.action = Action::help_all;
    return line;
  }
  if (arguments[0] == "completion") return parse_completion(arguments);
  if (arguments[0] == "man") return parse_man(arguments);
  return parse_data(arguments);
}

}  // namespace rr::app
