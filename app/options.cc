// The tables of the command line.
#include "app/options.h"

#include "base/base.h"

namespace rr::app {
namespace {

// A flag for a key that takes a number.
constexpr Option number(const char* dash, const char* name, const char* other, const char* key,
                        bool common, const char* help) {
  return {Id::key, Section::key, common, dash, name, other, Value::number, "N", "", key, help};
}

constexpr Option folder(const char* name, const char* key, const char* help) {
  return {Id::key, Section::key, true, "", name, "", Value::folder, "DIR", "", key, help};
}

constexpr Option plain(Id id, Section section, bool common, const char* name, const char* help,
                       const char* dash = "", const char* other = "") {
  return {id, section, common, dash, name, other, Value::none, "", "", "", help};
}

constexpr Option kOptions[] = {
    {Id::recipe, Section::recipe, true, "", "--recipe", "", Value::recipe, "NAME|FILE", "", "",
     "The recipe: a name of --list-recipes (NAME_config is NAME) or a YAML file."},
    {Id::model, Section::recipe, false, "", "--model", "", Value::model, "STEM", "", "",
     "Instead of --recipe: the recipe STEM_pretrain, STEM_sft or STEM_peft of --mode."},
    {Id::mode, Section::recipe, false, "", "--mode", "", Value::words, "MODE",
     "pretrain|sft|lora|dora", "",
     "What to train; follows from the name of a recipe, is needed with --model."},
    {Id::dataset, Section::recipe, false, "", "--dataset", "", Value::words, "PRESET", "mock", "",
     "Data instead of the recipe's: mock."},
    {Id::step_function, Section::recipe, false, "", "--step-func", "--step_func", Value::words,
     "NAME", "gpt_step", "", "The forward step; there is one, gpt_step."},

    plain(Id::dry_run, Section::action, true, "--dry-run",
          "Resolve, check and plan: layout, memory, time, launch line. Needs no GPU or data.", "",
          "--dry_run"),
    plain(Id::validate, Section::action, true, "--validate",
          "Check the recipe for a run and tell all problems."),
    plain(Id::print_config, Section::action, true, "--print-config",
          "Print the resolved recipe as YAML, which is a recipe itself."),
    plain(Id::print_launch, Section::action, true, "--print-launch",
          "Print the command that starts the recipe on its ranks."),

    {Id::world_size, Section::plan, true, "", "--world-size", "", Value::number, "N", "", "",
     "Plan for N ranks instead of the recipe's dist.world_size."},
    {Id::machine, Section::plan, true, "", "--machine", "", Value::machine, "NAME|FILE", "", "",
     "Plan for this kind of node (configs/machines), h100_sxm by default; in a run, what an "
     "offload "
     "fraction of auto is chosen for."},
    plain(Id::json, Section::plan, true, "--json",
          "Answer in JSON: --dry-run, --validate, --list-recipes, --version."),

    number("-ms", "--max_steps", "", "train.train_iters", true, "Iterations of the run."),
    number("-gb", "--global_batch_size", "", "train.global_batch_size", true,
           "Sequences of a step."),
    number("-mb", "--micro_batch_size", "", "train.micro_batch_size", true,
           "Sequences of a micro-batch."),
    number("-sl", "--seq_length", "", "dataset.seq_length", true,
           "Tokens of a sequence; the model follows."),
    number("-tp", "--tensor_model_parallel_size", "--tensor_parallel_size",
           "model.tensor_model_parallel_size", true, "Tensor parallel size."),
    number("-pp", "--pipeline_model_parallel_size", "--pipeline_parallel_size",
           "model.pipeline_model_parallel_size", true, "Pipeline stages."),
    number("-cp", "--context_parallel_size", "", "model.context_parallel_size", true,
           "Context parallel size."),
    number("-vp", "--virtual_pipeline_model_parallel_size", "--virtual_pipeline_parallel_size",
           "model.virtual_pipeline_model_parallel_size", true, "Model chunks of a stage."),
    number("-ep", "--expert_model_parallel_size", "--expert_parallel_size",
           "model.expert_model_parallel_size", true, "Expert parallel size."),
    number("-etp", "--expert_tensor_parallel_size", "", "model.expert_tensor_parallel_size", true,
           "Tensor parallel size of experts."),
    number("", "--lr", "", "optimizer.lr", true, "Highest learning rate."),
    number("", "--min_lr", "", "optimizer.min_lr", true, "Lowest learning rate."),
    number("", "--warmup_iters", "", "scheduler.lr_warmup_iters", true, "Warm-up iterations."),
    folder("--pretrained_checkpoint", "checkpoint.pretrained_checkpoint", "Weights to start from."),
    folder("--save_dir", "checkpoint.save", "Where to save checkpoints."),
    folder("--load_dir", "checkpoint.load", "Where to resume from."),
    number("", "--save_interval", "", "checkpoint.save_interval", true,
           "Iterations between checkpoints."),
    {Id::key, Section::key, true, "", "--deterministic", "", Value::none, "", "",
     "model.deterministic_mode", "Refuse what does not repeat bit for bit."},

    plain(Id::list_recipes, Section::about, true, "--list-recipes", "The recipes there are."),
    {Id::explain, Section::about, true, "", "--explain", "", Value::key, "KEY", "", "",
     "A key's or group's type, default, range, meaning and rules; with --recipe, who sets it."},
    {Id::measure_machine, Section::about, false, "", "--measure-machine", "", Value::file, "FILE",
     "", "", "Measure this machine for a few seconds and write FILE for --machine."},
    {Id::colour, Section::about, false, "", "--color", "", Value::words, "WHEN",
     "auto|always|never", "", "Colour of diagnostics; auto: on a terminal, not under a launcher."},
    plain(Id::dump_env, Section::about, false, "--dump-env",
          "Tell the environment on standard error first; secrets are hidden."),
    plain(Id::version, Section::about, true, "--version", "Versions of the program and its parts."),
    plain(Id::help, Section::about, true, "--help", "This text.", "-h"),
    plain(Id::help_all, Section::about, true, "--help-all", "All options, and the environment."),
};

constexpr Command kCommands[] = {
    {"data", "data build --input FILE... --output PREFIX", "build",
     "Make PREFIX.bin and PREFIX.idx of text files, a token per byte, a document per file."},
    {"completion", "completion bash|zsh|fish", "bash|zsh|fish",
     "Print the completion script of a shell."},
    {"man", "man", "", "Print the man page: run_recipe man | man -l -"},
};

constexpr Line kEnvironment[] = {
    {"RUN_RECIPE_GROUP__KEY",
     "A value for group.key, in capitals: RUN_RECIPE_OPTIMIZER__LR=1e-4. Stronger than the "
     "recipe, weaker than flags and overrides."},
    {"RUN_RECIPE_HOME", "A folder whose recipes and configs are found first."},
    {"NO_COLOR", "Not empty: no colour."},
    {"FORCE_COLOR", "Not empty and not 0: colour without a terminal."},
};

constexpr Line kExitCodes[] = {
    {"0", "done; the question is answered"},
    {"1", "a failure of the run, the machine or the program"},
    {"2", "usage or configuration: nothing was started"},
    {"128+n", "stopped by signal n"},
};

constexpr Line kOverrideForms[] = {
    {"a.b=v", "change a value"},
    {"+a.b=v", "add a value that is not there"},
    {"++a.b=v", "set it either way"},
    {"~a.b", "back to the default"},
    {"a.b=[1,2]", "a list; {k:v} a map, null no value, '...' text, ${c.d} another key's value"},
};

constexpr Line kExamples[] = {
    {"run_recipe --recipe tiny_gpt_pretrain", "train on one rank"},
    {"run_recipe --recipe tiny_gpt_pretrain optimizer.lr=1e-3", "override a value"},
    {"run_recipe --recipe qwen3_30b_a3b_pretrain --dry-run", "layout, memory, time, launch line"},
    {"run_recipe --explain optimizer.optimizer_offload_fraction", "what a key means"},
};

std::vector<std::string> split_bars(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t bar = text.find('|');
    words.emplace_back(text.substr(0, bar));
    text = bar == std::string_view::npos ? "" : text.substr(bar + 1);
  }
  return words;
}

}  // namespace

std::span<const Option> options() { return kOptions; }
std::span<const Command> commands() { return kCommands; }
std::span<const Line> environment() { return kEnvironment; }
std::span<const Line> exit_codes() { return kExitCodes; }
std::span<const Line> override_forms() { return kOverrideForms; }
std::span<const Line> examples() { return kExamples; }

const Option* find_option(std::string_view spelling) {
  if (spelling.empty()) return nullptr;
  for (const Option& option : kOptions)
    if (spelling == option.name || spelling == option.dash || spelling == option.other)
      return &option;
  return nullptr;
}

const Option& option_of(Id id) {
  for (const Option& option : kOptions)
    if (option.id == id) return option;
  fail_check("every Id has an option", __FILE__, __LINE__, "");
}

std::vector<std::string> spellings(const Option& option) {
  std::vector<std::string> all;
  for (const char* spelling : {option.dash, option.name, option.other})
    if (*spelling) all.emplace_back(spelling);
  return all;
}

std::vector<std::string> words_of(const Option& option) { return split_bars(option.words); }

const char* title_of(Section section) {
  switch (section) {
    case Section::recipe:
      return "what to train";
    case Section::action:
      return "what to do with the recipe (default: train)";
    case Section::plan:
      return "for plans";
    case Section::key:
      return "flags for common keys (an override of the same key wins)";
    case Section::about:
      return "about run_recipe";
  }
  return "";
}

}  // namespace rr::app
