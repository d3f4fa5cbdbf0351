// Command-line parsing over CLI11.
//
// Overrides are taken out before CLI11 sees the arguments, which would split "[a,b]" in two, and
// single-dash names of several letters become their long form, which it cannot parse.
#include "app/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstring>

#include "base/base.h"
#include "base/text.h"

namespace rr::app {
namespace {

// A flag that stands for a key. `other` is a second long spelling, or empty.
struct KeyFlag {
  const char* dash;
  const char* name;
  const char* other;
  const char* key;
};

constexpr std::array<KeyFlag, 17> kKeyFlags = {{
    {"-ms", "--max_steps", "", "train.train_iters"},
    {"-gb", "--global_batch_size", "", "train.global_batch_size"},
    {"-mb", "--micro_batch_size", "", "train.micro_batch_size"},
    {"-sl", "--seq_length", "", "dataset.seq_length"},
    {"-tp", "--tensor_model_parallel_size", "--tensor_parallel_size",
     "model.tensor_model_parallel_size"},
    {"-pp", "--pipeline_model_parallel_size", "--pipeline_parallel_size",
     "model.pipeline_model_parallel_size"},
    {"-cp", "--context_parallel_size", "", "model.context_parallel_size"},
    {"-vp", "--virtual_pipeline_model_parallel_size", "--virtual_pipeline_parallel_size",
     "model.virtual_pipeline_model_parallel_size"},
    {"-ep", "--expert_model_parallel_size", "--expert_parallel_size",
     "model.expert_model_parallel_size"},
    {"-etp", "--expert_tensor_parallel_size", "", "model.expert_tensor_parallel_size"},
    {"", "--lr", "", "optimizer.lr"},
    {"", "--min_lr", "", "optimizer.min_lr"},
    {"", "--warmup_iters", "", "scheduler.lr_warmup_iters"},
    {"", "--pretrained_checkpoint", "", "checkpoint.pretrained_checkpoint"},
    {"", "--save_dir", "", "checkpoint.save"},
    {"", "--load_dir", "", "checkpoint.load"},
    {"", "--save_interval", "", "checkpoint.save_interval"},
}};

// Other options that take a value.
constexpr std::array<const char*, 10> kValueOptions = {
    "--recipe",  "--model", "--mode",   "--explain", "--world-size",
    "--machine", "--input", "--output", "--dataset", "--step-func"};

const KeyFlag* find_key_flag(const std::string& token) {
  for (const KeyFlag& flag : kKeyFlags)
    if (token == flag.name || (*flag.dash && token == flag.dash) ||
        (*flag.other && token == flag.other))
      return &flag;
  return nullptr;
}

[[noreturn]] void refuse(const std::string& key, const std::string& what,
                         const std::string& remedy) {
  throw UsageError(Problem{.key = key, .where = "command line", .what = what, .remedy = remedy});
}

// Every long option that CLI11 knows, and the key flags.
std::vector<std::string> known_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const KeyFlag& flag : kKeyFlags) names.emplace_back(flag.name);
  return names;
}

Problem unknown_option(const std::string& name, const std::vector<std::string>& known) {
  const std::vector<std::string> near =
      name.starts_with("--") ? nearest(name, known) : std::vector<std::string>{};
  return {.key = name,
          .where = "command line",
          .what = "Unknown option: " + name + ".",
          .remedy =
              near.empty() ? "See run_recipe --help." : "Did you mean " + join(near, " or ") + "?"};
}

// What is left for CLI11, and what is not its business.
struct Split {
  std::vector<std::string> options;
  std::vector<std::string> overrides;
  std::vector<recipe::Flag> flags;
};

bool is_number(const std::string& text) {
  return text.size() > 1 && std::isdigit(static_cast<unsigned char>(text[1]));
}

bool takes_value(const std::string& name) {
  return find_key_flag(name) != nullptr ||
         std::find(kValueOptions.begin(), kValueOptions.end(), name) != kValueOptions.end();
}

Split split(const std::vector<std::string>& arguments, const std::vector<std::string>& known) {
  Split result;
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& token = arguments[i];
    const std::size_t equals = token.find('=');
    const std::string name = token.substr(0, equals);
    if (token.empty() || token[0] != '-') {
      if (equals == std::string::npos && !token.starts_with('~')) {
        problems.push_back({.key = token,
                            .where = "command line",
                            .what = "Expected override in KEY=VALUE form, got " + token + ".",
                            .remedy = "Write " + token + "=VALUE; a recipe goes after --recipe."});
      }
      result.overrides.push_back(token);
      continue;
    }
    const bool is_known = name == "-h" || find_key_flag(name) != nullptr ||
                          std::find(known.begin(), known.end(), name) != known.end();
    std::optional<std::string> value;
    if (equals != std::string::npos) value = token.substr(equals + 1);
    const bool value_follows = i + 1 < arguments.size() &&
                               (!arguments[i + 1].starts_with('-') || is_number(arguments[i + 1]));
    if (!is_known) {
      problems.push_back(unknown_option(name, known));
      // What follows is more likely its value than an override of its own.
      if (!value && value_follows && arguments[i + 1].find('=') == std::string::npos) ++i;
      continue;
    }
    if (takes_value(name) && !value) {
      if (!value_follows) {
        problems.push_back({.key = name, .where = "command line", .what = "needs a value."});
        continue;
      }
      value = arguments[++i];
    }
    if (const KeyFlag* flag = find_key_flag(name)) {
      result.flags.push_back({name, flag->key, *value});
    } else {
      result.options.push_back(name);
      if (value) result.options.push_back(*value);
    }
  }
  if (!problems.empty()) throw UsageError(problems);
  return result;
}

// Runs CLI11 and turns its errors into ours.
void parse_options(CLI::App& app, std::vector<std::string> options) {
  std::reverse(options.begin(), options.end());
  try {
    app.parse(std::move(options));
  } catch (const CLI::ParseError& error) {
    refuse("", error.what(), "See run_recipe --help.");
  }
}

CommandLine parse_data(std::vector<std::string> arguments) {
  CommandLine line;
  line.action = Action::data_build;
  if (arguments.size() < 2 || arguments[1] != "build")
    refuse("data", "has one command, build.",
           "Use run_recipe data build --input FILE... --output PREFIX.");
  arguments.erase(arguments.begin(), arguments.begin() + 2);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--output" && i + 1 < arguments.size()) {
      line.output_prefix = arguments[++i];
    } else if (arguments[i] == "--help" || arguments[i] == "-h") {
      line.action = Action::help;
    } else if (arguments[i].starts_with("--") && arguments[i] != "--input") {
      refuse(arguments[i], "Unknown option: " + arguments[i] + ".",
             "Use run_recipe data build --input FILE... --output PREFIX.");
    } else if (arguments[i] != "--input") {
      line.inputs.push_back(arguments[i]);
    }
  }
  if (line.action == Action::help) return line;
  if (line.inputs.empty()) refuse("--input", "no input file.", "Name at least one text file.");
  if (line.output_prefix.empty())
    refuse("--output", "no output prefix.", "Name the path of the .bin and .idx without ending.");
  return line;
}

// The recipe's name from --recipe, or from --model and --mode.
std::string recipe_name(const std::string& recipe, const std::string& model, std::string mode) {
  if (!recipe.empty() && !model.empty())
    refuse("--model", "--recipe and --model exclude each other.", "Give one of them.");
  if (!recipe.empty() || model.empty()) return recipe;
  if (mode.empty())
    refuse("--mode",
           "Unable to infer training mode; pass --mode or use a conventional --recipe name.",
           "Use --mode pretrain.");
  if (mode == "lora" || mode == "dora") mode = "peft";
  return model + "_" + mode;
}

}  // namespace

CommandLine parse(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0] == "data") return parse_data(arguments);
  CommandLine line;
  line.arguments = arguments;
  line.request.search_paths = recipe::default_search_paths();

  CLI::App app;
  app.set_help_flag();
  std::string recipe, model, mode, dataset, step_function;
  int world_size = 0;
  bool help = false, version = false, list = false, dry_run = false, print_config = false,
       print_launch = false, validate = false, deterministic = false;
  app.add_option("--recipe", recipe);
  app.add_option("--model", model);
  app.add_option("--mode", mode)->check(CLI::IsMember({"pretrain", "sft", "lora", "dora"}));
  app.add_option("--dataset", dataset);
  app.add_option("--step-func", step_function);
  app.add_option("--explain", line.explain_key);
  app.add_option("--world-size", world_size)->check(CLI::PositiveNumber);
  CLI::Option* machine = app.add_option("--machine", line.machine);
  app.add_flag("-h,--help", help);
  app.add_flag("--version", version);
  app.add_flag("--list-recipes", list);
  app.add_flag("--dry-run,--dry_run", dry_run);
  app.add_flag("--print-config", print_config);
  app.add_flag("--print-launch", print_launch);
  app.add_flag("--validate", validate);
  app.add_flag("--json", line.json);
  app.add_flag("--deterministic", deterministic);
  app.add_flag("--dump-env", line.dump_env);
  const Split parts = split(arguments, known_options(app));
  line.request.overrides = parts.overrides;
  line.request.flags = parts.flags;
  parse_options(app, parts.options);

  line.request.recipe = recipe_name(recipe, model, mode);
  if (world_size > 0) line.request.world_size = world_size;
  if (deterministic)
    line.request.flags.push_back({"--deterministic", "model.deterministic_mode", "true"});
  if (!dataset.empty() && dataset != "mock")
    refuse("--dataset", "the preset '" + dataset + "' is not supported.",
           "Use --dataset mock, or dataset.data_path=PREFIX for .bin/.idx files.");
  if (dataset == "mock") line.request.flags.push_back({"--dataset", "dataset.blend", "null"});
  if (!step_function.empty())
    refuse("--step-func", "there is one forward step, GPT's.", "Leave it out.");

  if (help)
    line.action = Action::help;
  else if (version)
    line.action = Action::version;
  else if (list)
    line.action = Action::list_recipes;
  else if (app.count("--explain") > 0)
    line.action = Action::explain;
  else if (dry_run)
    line.action = Action::dry_run;
  else if (print_config)
    line.action = Action::print_config;
  else if (print_launch)
    line.action = Action::print_launch;
  else if (validate)
    line.action = Action::validate;

  const bool needs_recipe = line.action == Action::train || line.action == Action::dry_run ||
                            line.action == Action::print_config ||
                            line.action == Action::print_launch || line.action == Action::validate;
  if (needs_recipe && line.request.recipe.empty())
    refuse("--recipe", "no recipe given.",
           "Use --recipe NAME; run_recipe --list-recipes shows the names.");
  if (machine->count() > 0 && line.action == Action::train)
    refuse("--machine", "is for plans only.", "Add --dry-run.");
  return line;
}

std::string help_text() {
  return
      R"(run_recipe trains GPT and mixture-of-experts models from a recipe.

usage: run_recipe --recipe NAME|FILE [flags] [key=value ...]
       run_recipe data build --input FILE... --output PREFIX

examples:
  run_recipe --recipe tiny_gpt_pretrain                        train on one rank
  run_recipe --recipe tiny_gpt_pretrain optimizer.lr=1e-3      override a value
  run_recipe --recipe qwen3_30b_a3b_pretrain --dry-run         layout, memory, launch line
  run_recipe --explain optimizer.optimizer_offload_fraction    what a key means

what to do with the recipe (default: train)
  --dry-run             resolve, check and plan; needs no GPU, launch or data
  --validate [--json]   check only
  --print-config        the resolved recipe as YAML
  --print-launch        the command that starts it on its ranks
  --world-size N        plan for N ranks (default: dist.world_size of the recipe)
  --machine NAME|FILE   plan for this machine, from configs/machines

about run_recipe
  --list-recipes  --explain KEY  --version  --help

flags for common keys (an override of the same key wins)
  -ms --max_steps    -gb --global_batch_size    -mb --micro_batch_size    -sl --seq_length
  -tp -pp -cp -vp -ep -etp  parallel sizes      --lr --min_lr --warmup_iters
  --save_dir --load_dir --save_interval --pretrained_checkpoint
  --model STEM --mode pretrain    --dataset mock    --deterministic    --dump-env

overrides:  a.b=v changes, +a.b=v adds, ++a.b=v sets, ~a.b deletes; lists [a,b], maps {k:v}, null
exit codes: 0 done, 1 failure, 2 usage or configuration, 128+n stopped by signal n
)";
}

}  // namespace rr::app
