// The command line as users type it: spellings, answers, refusals, what goes where.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "cli/program.h"

namespace rr::test {
namespace {

using nlohmann::json;

constexpr char kEscape = '\x1b';

json json_of(const std::string& arguments, int code, const Scratch& folder) {
  const Outcome outcome = run(1, arguments, folder, 30);
  INFO(arguments);
  INFO(outcome.err << outcome.out);
  REQUIRE(outcome.code == code);
  REQUIRE(outcome.err.empty());
  return json::parse(outcome.out);
}

struct Setting {
  std::string value, origin;
};

// What a dry run says was set, by key.
std::map<std::string, Setting> settings(const std::string& arguments, const Scratch& folder) {
  std::map<std::string, Setting> found;
  const json answer = json_of(arguments + " --dry-run --json", 0, folder);
  for (const json& row : answer.at("settings"))
    found[row.at("key")] = {row.at("value"), row.at("origin")};
  return found;
}

// "key: what" of every problem.
std::vector<std::string> problems(const std::string& arguments, const Scratch& folder) {
  std::vector<std::string> found;
  const json answer = json_of(arguments + " --json", 2, folder);
  for (const json& row : answer.at("problems")) {
    REQUIRE(row.at("severity").is_string());
    REQUIRE(row.at("where").is_string());
    REQUIRE(row.at("remedy").is_string());
    found.push_back(row.at("key").get<std::string>() + ": " + row.at("what").get<std::string>());
  }
  return found;
}

bool any_has(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

std::set<std::string> shipped_recipes() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(RR_SOURCE_DIR "/recipes"))
    names.insert(entry.path().stem().string());
  REQUIRE(names.size() > 10);
  return names;
}

}  // namespace

TEST_CASE("every spelling of a flag sets its key and is named as the origin") {
  struct Row {
    std::string dash, name, other, value, key;
  };
  // Values that fit together on 16 ranks and differ from the defaults.
  const std::vector<Row> rows = {
      {"-ms", "--max_steps", "", "7", "train.train_iters"},
      {"-gb", "--global_batch_size", "", "24", "train.global_batch_size"},
      {"-mb", "--micro_batch_size", "", "3", "train.micro_batch_size"},
      {"-sl", "--seq_length", "", "16", "dataset.seq_length"},
      {"-tp", "--tensor_model_parallel_size", "--tensor_parallel_size", "2",
       "model.tensor_model_parallel_size"},
      {"-pp", "--pipeline_model_parallel_size", "--pipeline_parallel_size", "2",
       "model.pipeline_model_parallel_size"},
      {"-cp", "--context_parallel_size", "", "2", "model.context_parallel_size"},
      {"-vp", "--virtual_pipeline_model_parallel_size", "--virtual_pipeline_parallel_size", "2",
       "model.virtual_pipeline_model_parallel_size"},
      {"-ep", "--expert_model_parallel_size", "--expert_parallel_size", "2",
       "model.expert_model_parallel_size"},
      {"-etp", "--expert_tensor_parallel_size", "", "1", "model.expert_tensor_parallel_size"},
      {"", "--lr", "", "0.5", "optimizer.lr"},
      {"", "--min_lr", "", "0.25", "optimizer.min_lr"},
      {"", "--warmup_iters", "", "3", "scheduler.lr_warmup_iters"},
      {"", "--save_interval", "", "5", "checkpoint.save_interval"},
      {"", "--deterministic", "", "", "model.deterministic_mode"},
  };
  const auto check = [&](const auto& spelling_of, const std::string& separator) {
    const Scratch folder;
    std::string arguments = recipe("tm") +
                            " --world-size 16 model.sequence_parallel=true"
                            " model.seq_length=16";
    for (const Row& row : rows)
      arguments += " " + spelling_of(row) + (row.value.empty() ? "" : separator + row.value);
    const std::map<std::string, Setting> found = settings(arguments, folder);
    for (const Row& row : rows) {
      INFO(spelling_of(row) << " for " << row.key);
      REQUIRE(found.contains(row.key));
      REQUIRE(found.at(row.key).value == (row.value.empty() ? "true" : row.value));
      REQUIRE(found.at(row.key).origin == spelling_of(row));
    }
  };
  check([](const Row& row) { return row.dash.empty() ? row.name : row.dash; }, " ");
  check([](const Row& row) { return row.name; }, " ");
  check([](const Row& row) { return row.other.empty() ? row.name : row.other; }, "=");
}

TEST_CASE("presence decides, not truth: a flag can set zero, and false beats the recipe") {
  const Scratch folder;
  const auto found =
      settings(recipe("td") +
                   " -ms 0 --lr 0 --min_lr 0 --warmup_iters 0 scheduler.lr_warmup_init=0"
                   " ddp.check_for_nan_in_grad=false",
               folder);
  REQUIRE(found.at("train.train_iters").value == "0");
  REQUIRE(found.at("optimizer.lr").value == "0");
  // Back at their defaults: no longer among what differs, as the recipe's values would be.
  for (const char* key : {"ddp.check_for_nan_in_grad", "scheduler.lr_warmup_iters"})
    REQUIRE_FALSE(found.contains(key));
}

TEST_CASE(
    "an override beats a flag, a flag the environment, that the recipe, and the last one counts") {
  const Scratch folder;
  const auto iterations = [&](const std::string& prefix, const std::string& arguments) {
    const Outcome outcome =
        shell(prefix + " \"$RR\" " + recipe("td") + " --print-config " + arguments, folder);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    const std::vector<std::string> lines = lines_with(outcome.out, "  train_iters:");
    REQUIRE(lines.size() == 1);
    return lines[0];
  };
  const auto starts = [](const std::string& line, const std::string& part) {
    INFO(line);
    REQUIRE(line.starts_with("  train_iters: " + part));
  };
  const std::string variable = "RUN_RECIPE_TRAIN__TRAIN_ITERS=4";
  starts(iterations("", ""), "10");
  starts(iterations(variable, ""), "4");
  starts(iterations(variable, "-ms 5"), "5");
  starts(iterations(variable, "train.train_iters=6 -ms 5"), "6");
  starts(iterations("", "-ms 5 --max_steps 8"), "8");
  const Outcome twice = run(1, recipe("td") + " --validate -ms 5 --max_steps 8", folder);
  REQUIRE(lines_with(twice.err, "--max_steps").size() == 1);
  REQUIRE(twice.err.find("is given twice") != std::string::npos);
}

TEST_CASE("there are no abbreviations, and all unknown arguments are told at once") {
  const Scratch folder;
  const std::vector<std::string> found = problems(
      "--rec td --dry --max_step 3 -t 2 --tensor_model_parallel 2 --model.num_layers=2 "
      "model.num_layers -xy --World-Size 4",
      folder);
  for (const char* part :
       {"--rec: Unknown option", "--dry: Unknown option", "--max_step: Unknown option",
        "-t: Unknown option", "--tensor_model_parallel: Unknown option",
        "--model.num_layers: Unknown option", "-xy: Unknown option", "--World-Size: Unknown option",
        "Expected override in KEY=VALUE form, got model.num_layers", "--recipe: no recipe given"}) {
    INFO(part);
    REQUIRE(any_has(found, part));
  }
  REQUIRE(any_has(found, "--json: this answer has no JSON form"));
  REQUIRE(found.size() == 11);
}

TEST_CASE("what does not go together is refused, never ignored") {
  const std::string td = recipe("td");
  struct Row {
    std::string arguments;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {td + " --dry-run --print-config --world-size 0 --machine",
       {"--dry-run and --print-config exclude each other", "'0' is no number of ranks",
        "--machine (command line): needs a value"}},
      {td + " --json", {"no JSON form"}},
      {td + " --machine h100_sxm --world-size 2",
       {"--world-size (command line): is for plans only"}},
      {td + " --machine h100_sxm", {"--machine (command line): changes nothing in a run"}},
      {td + " --machine h100_sxm --validate", {"--machine (command line): is for plans only"}},
      {td + " --model tiny_gpt --mode pretrain", {"--recipe and --model exclude each other"}},
      {"--model tiny_gpt", {"Unable to infer training mode; pass --mode or use a conventional"}},
      {"--recipe tiny_gpt_pretrain --mode sft", {"contradicts the recipe tiny_gpt_pretrain"}},
      {td + " --mode lora", {"nothing in", "is changed by --mode lora"}},
      {td + " --mode train --dataset squad --step-func vlm_step --dry-run=1",
       {"'train' is not one of pretrain, sft, lora, dora", "'squad' is not one of mock",
        "'vlm_step' is not one of gpt_step", "--dry-run (command line): takes no value"}},
      {"--list-recipes " + td + " optimizer.lr=1", {"--list-recipes reads no recipe"}},
      {"--explain optimizer.lr optimizer.lr=1", {"no recipe given"}},
      {"completion tcsh", {"needs the name of one shell"}},
      {"man bash", {"takes no arguments"}},
      {"data bild", {"has one command, build"}},
      {"data build --format x", {"Unknown option: --format", "no output prefix"}},
      {td + " --dry-run --machine h100_pcie", {"there is no machine 'h100_pcie'", "h100_sxm"}},
  };
  const Scratch folder;
  for (const Row& row : rows) {
    const Outcome outcome = run(1, row.arguments, folder, 30);
    INFO(row.arguments);
    INFO(outcome.err << outcome.out);
    REQUIRE(outcome.code == 2);
    const std::string text = outcome.err + outcome.out;
    for (const std::string& part : row.parts) {
      INFO(part);
      REQUIRE(text.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("the reference's other spellings are accepted") {
  const Scratch folder;
  const Outcome by_model = run(1,
                               "--model tiny_gpt --mode pretrain --dataset mock --step_func "
                               "gpt_step --dry_run",
                               folder);
  INFO(by_model.err);
  REQUIRE(by_model.code == 0);
  REQUIRE(run(1, "--recipe tiny_gpt_pretrain_config --mode pretrain --print-launch", folder).out ==
          std::string(RR_BINARY_DIR) +
              "/run_recipe --recipe tiny_gpt_pretrain_config --mode pretrain\n");
  const std::string gpt = "--recipe tiny_gpt_pretrain";
  REQUIRE(settings(gpt, folder).contains("dataset.data_path"));
  REQUIRE_FALSE(settings(gpt + " --dataset mock", folder).contains("dataset.data_path"));
}

TEST_CASE("validate as JSON tells every problem of an invalid recipe, with a remedy") {
  const Scratch folder;
  const json broken = json_of(recipe("td") +
                                  " --validate --json optimizer.lr=fast"
                                  " train.micro_batch_size=3 model.num_layer=2"
                                  " model.tensor_model_parallel_size=2",
                              2, folder);
  REQUIRE(broken.at("ok") == false);
  REQUIRE(broken.at("recipe") == "td");
  std::map<std::string, json> by_key;
  for (const json& problem : broken.at("problems")) by_key[problem.at("key")] = problem;
  REQUIRE(by_key.at("optimizer.lr").at("severity") == "error");
  REQUIRE(by_key.at("optimizer.lr").at("where") == "override 1");
  REQUIRE(by_key.at("optimizer.lr").at("what").get<std::string>().find("fast") !=
          std::string::npos);
  REQUIRE(by_key.at("model.num_layer").at("remedy").get<std::string>().find("model.num_layers") !=
          std::string::npos);
  REQUIRE(by_key.at("model.tensor_model_parallel_size").at("severity") == "plan_only");

  const json good = json_of(recipe("td") + " --validate --json", 0, folder);
  REQUIRE(good.at("ok") == true);
  REQUIRE(good.at("problems").empty());
  REQUIRE(run(1, recipe("td") + " --validate", folder).out == "ok\n");

  REQUIRE(any_has(problems("--validate --recipe no_such_recipe", folder), "no_such_recipe"));
  std::ofstream(folder.file("bad.yaml")) << "train: {train_iters: 1\n";
  REQUIRE(problems("--validate --recipe bad.yaml", folder).size() >= 1);
  // Bytes that are no UTF-8 still make a JSON text.
  REQUIRE(any_has(problems("--validate --recipe \"$(printf 'a\\377b')\"", folder), "not found"));
}

TEST_CASE("a dry run says machine, layout, memory, time and origins, and writes nothing") {
  const Scratch folder;
  const std::string arguments = recipe("tm") + " -ep 2 --world-size 4 optimizer.lr=1e-3 --dry-run";
  const Outcome text = run(1, arguments, folder);
  REQUIRE(text.code == 0);
  for (const char* part :
       {"h100_sxm is the default machine; others: --machine a100", "it fits", "predicted step",
        "optimizer.lr: 0.001  # override 1", "model.expert_model_parallel_size: 2  # -ep",
        "layout: 4 ranks", "launch: mpirun -n 4 "}) {
    INFO(part);
    REQUIRE(text.out.find(part) != std::string::npos);
  }
  REQUIRE(text.out.find("--dry-run\n") == std::string::npos);
  REQUIRE(text.out.find("--world-size") == std::string::npos);
  const json plan = json_of(arguments + " --json --machine gb200", 0, folder);
  REQUIRE(plan.at("machine") == "gb200");
  REQUIRE(plan.at("topology").at("world") == 4);
  REQUIRE(plan.at("rank_classes").size() >= 1);
  REQUIRE(plan.at("launch").get<std::string>().find("--machine") == std::string::npos);
  // The 30B model does not fit 24 GB: by how much is said, and the answer is still an answer.
  const Outcome small = run(1,
                            "--recipe qwen3_8b_pretrain --world-size 1 --dry-run --machine "
                            "desktop_24g model.sequence_parallel=false",
                            folder);
  INFO(small.out << small.err);
  REQUIRE(small.code == 0);
  REQUIRE(small.out.find("does not fit") != std::string::npos);
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    left.insert(entry.path().filename().string());
  REQUIRE(left == std::set<std::string>{"command.sh", "err", "out"});
}

TEST_CASE(
    "the printed configuration of every shipped recipe loads back to the same configuration") {
  const Scratch folder;
  // Two programs at a time; the second reads what the first printed, whose comments name the first.
  std::ofstream(folder.file("both.sh"))
      << "\"$RR\" --recipe $1 --print-config 2>/dev/null >$1.yaml || { echo $1: no config; exit; "
         "}\n"
         "\"$RR\" --recipe ./$1.yaml --print-config 2>/dev/null >$1.again || echo $1: no reload\n"
         "sed -i 's/ *#.*//' $1.yaml $1.again\n"
         "cmp -s $1.yaml $1.again || echo $1: differs\n"
         "grep -q 'train_iters: ' $1.again || echo $1: empty\n";
  std::string names;
  for (const std::string& name : shipped_recipes()) names += name + "\n";
  std::ofstream(folder.file("names")) << names;
  const Outcome outcome = shell("xargs -P 2 -n 1 sh both.sh <names", folder);
  INFO(outcome.err);
  REQUIRE(outcome.out == "");
  REQUIRE(outcome.code == 0);
}

TEST_CASE("the list of recipes names every shipped recipe with its size, ranks and precision") {
  const Scratch folder;
  std::set<std::string> listed;
  const json rows = json_of("--list-recipes --json", 0, folder);
  for (const json& row : rows) {
    INFO(row.dump());
    listed.insert(row.at("name").get<std::string>());
    REQUIRE(row.at("parameters").get<std::int64_t>() > 0);
    REQUIRE_FALSE(row.at("summary").get<std::string>().empty());
    if (row.at("name") == "qwen3_30b_a3b_pretrain") {
      REQUIRE(row.at("parameters") == 30532122624);
      REQUIRE(row.at("ranks") == 16);
      REQUIRE(row.at("precision") == "bf16_mixed");
      REQUIRE(row.at("model") == "qwen3_30b_a3b");
    }
  }
  REQUIRE(listed == shipped_recipes());
  const Outcome text = run(1, "--list-recipes", folder);
  for (const std::string& name : shipped_recipes())
    REQUIRE(lines_with("\n" + text.out, name + " ").size() >= 1);
  REQUIRE(text.out.find(kEscape) == std::string::npos);
}

TEST_CASE("the version names program, commit, compiler, torch and MPI library") {
  const Scratch folder;
  const json versions = json_of("--version --json", 0, folder);
  std::ifstream file(RR_SOURCE_DIR "/third_party/versions.sh");
  std::string torch;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("TORCH_VERSION=")) torch = line.substr(line.find('=') + 1);
  REQUIRE(versions.at("torch") == torch);
  REQUIRE(
      std::regex_match(versions.at("git").get<std::string>(), std::regex("[0-9a-f]{12}|unknown")));
  REQUIRE(std::regex_match(versions.at("run_recipe").get<std::string>(),
                           std::regex("\\d+\\.\\d+\\.\\d+")));
  REQUIRE(std::regex_search(versions.at("compiler").get<std::string>(), std::regex("\\d+\\.\\d+")));
  REQUIRE_FALSE(versions.at("mpi").get<std::string>().empty());
  const Outcome text = run(1, "--version", folder);
  REQUIRE(
      text.out.starts_with("run_recipe " + versions.at("run_recipe").get<std::string>() + "\n"));
  REQUIRE(text.out.find("\ntorch " + torch + "\n") != std::string::npos);
}

TEST_CASE("help is one screen on standard output and without arguments an error") {
  const Scratch folder;
  const Outcome help = run(1, "--help", folder);
  REQUIRE(help.code == 0);
  REQUIRE(help.err.empty());
  REQUIRE(std::count(help.out.begin(), help.out.end(), '\n') <= 45);
  // Whoever asks for help gets it, whatever else is wrong.
  REQUIRE(run(1, "--bad model.x -h", folder).out == help.out);
  const Outcome nothing = run(1, "", folder);
  REQUIRE(nothing.code == 2);
  REQUIRE(nothing.out.empty());
  REQUIRE(nothing.err.find("usage: run_recipe") != std::string::npos);
  const Outcome full = shell("\"$RR\" --help >/dev/full", folder);
  REQUIRE(full.code == 1);
  REQUIRE(full.err.find("cannot write to standard output") != std::string::npos);
}

TEST_CASE("help, man page and completions know the same options") {
  const Scratch folder;
  const Outcome all = shell(
      "for what in --help-all man 'completion bash' 'completion zsh' 'completion fish'; do\n"
      "\"$RR\" $what >\"$(echo $what | tr -d ' ')\" || echo failed $what\ndone\n"
      "sed -i 's/\\\\-/-/g' man; cat ./--help-all",
      folder);
  REQUIRE(all.err.empty());
  std::set<std::string> spellings;
  const std::regex option("[ ,](--?[A-Za-z][A-Za-z_-]*)");
  // In the options part only: examples and overrides come before and after it.
  const std::size_t begin = all.out.find("\nwhat to train"), end = all.out.find("\noverrides");
  REQUIRE(begin < end);
  const std::string part = all.out.substr(begin, end - begin);
  for (std::sregex_iterator match(part.begin(), part.end(), option), none; match != none; ++match)
    spellings.insert((*match)[1]);
  REQUIRE(spellings.size() > 50);
  for (const char* file : {"man", "completionbash", "completionzsh"}) {
    std::ifstream stream(folder.file(file));
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    for (const std::string& spelling : spellings) {
      INFO(spelling << " in " << file);
      REQUIRE(text.find(spelling) != std::string::npos);
    }
  }
  std::ifstream stream(folder.file("completionfish"));
  const std::string fish{std::istreambuf_iterator<char>(stream), {}};
  for (const std::string& spelling : spellings) {
    const bool is_long = spelling.starts_with("--");
    const std::string name = spelling.substr(is_long ? 2 : 1);
    INFO(spelling << " in fish");
    REQUIRE(fish.find((is_long            ? "-l "
                       : name.size() == 1 ? "-s "
                                          : "-o ") +
                      name + " ") != std::string::npos);
  }
}

}  // namespace rr::test
