// What the surroundings decide: terminal, environment, launcher, files.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "cli/program.h"

namespace rr::test {
namespace {

constexpr char kEscape = '\x1b';

}  // namespace

TEST_CASE("colour follows NO_COLOR, TERM, the terminal and the launcher, width the terminal") {
  const Scratch folder;
  struct Row {
    std::string before, after;
    bool coloured;
  };
  const std::string bad = "\"$RR\" --recipe nothing --validate";
  const std::vector<Row> on_terminal = {
      {"", "", true},
      {"NO_COLOR=1 ", "", false},
      {"NO_COLOR= ", "", true},
      {"TERM=dumb ", "", false},
      {"", " --color never", false},
      {"NO_COLOR=1 ", " --color=always", true},
      // As a launcher that hands its terminal on.
      {"OMPI_COMM_WORLD_SIZE=1 ", "", false},
  };
  for (const Row& row : on_terminal) {
    std::ofstream(folder.file("typed")) << row.before << bad << row.after << "\n";
    const Outcome outcome =
        shell("unset NO_COLOR FORCE_COLOR; TERM=xterm script -qec 'sh typed' /dev/null </dev/null",
              folder);
    INFO(row.before << bad << row.after << "\n" << outcome.out);
    REQUIRE(outcome.out.find("not found") != std::string::npos);
    REQUIRE((outcome.out.find(std::string(1, kEscape) + "[") != std::string::npos) == row.coloured);
  }
  const Outcome piped = shell("unset NO_COLOR FORCE_COLOR; " + bad, folder);
  REQUIRE(piped.err.find(kEscape) == std::string::npos);
  REQUIRE(shell("FORCE_COLOR=1 " + bad, folder).err.find(kEscape) != std::string::npos);
  REQUIRE(shell("FORCE_COLOR=0 " + bad, folder).err.find(kEscape) == std::string::npos);

  std::ofstream(folder.file("typed"))
      << "stty cols 60; \"$RR\" --help-all; \"$RR\" --list-recipes\n";
  const Outcome narrow = shell("script -qec 'sh typed' /dev/null </dev/null", folder);
  REQUIRE(narrow.out.find("overrides") != std::string::npos);
  std::istringstream lines(narrow.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    INFO(line);
    // What is one word, or an option with all its spellings, is not cut.
    REQUIRE((line.size() <= 60 || line.starts_with("  --") || line.starts_with("  -") ||
             line.find("run_recipe") != std::string::npos));
  }
}

TEST_CASE("dumping the environment tells it on standard error and hides secrets") {
  const Scratch folder;
  const Outcome outcome =
      shell("SOME_SETTING=seen HF_TOKEN=hidden1 AWS_SECRET_ACCESS_KEY=hidden2 \"$RR\" " +
                recipe("td") + " --dump-env --print-config",
            folder);
  REQUIRE(outcome.code == 0);
  REQUIRE(outcome.err.find("SOME_SETTING=seen\n") != std::string::npos);
  REQUIRE(outcome.err.find("HF_TOKEN=(hidden)\n") != std::string::npos);
  REQUIRE(outcome.err.find("hidden1") == std::string::npos);
  REQUIRE(outcome.err.find("hidden2") == std::string::npos);
  REQUIRE(outcome.out.find("SOME_SETTING") == std::string::npos);
}

TEST_CASE("launched on several ranks, answers and refusals come once") {
  const Scratch folder;
  const Outcome help = run(2, "--help", folder);
  REQUIRE(help.code == 0);
  REQUIRE(lines_with(help.out, "usage: run_recipe").size() == 1);
  const Outcome refused = run(2, "--recipe td --bad", folder);
  REQUIRE(refused.code == 2);
  REQUIRE(lines_with(refused.err, "Unknown option: --bad").size() == 1);
}

TEST_CASE("the launch line keeps every word of the run, quoted for a shell") {
  const Scratch folder;
  const std::string words =
      "--recipe tiny_moe_pretrain 'dataset.blend=[[a b],null]' \"logger.tensorboard_dir='it is'\" "
      "-ms "
      "3";
  const Outcome launch = run(1, words + " --print-launch --world-size 8 --dump-env", folder);
  INFO(launch.out << launch.err);
  REQUIRE(launch.code == 0);
  REQUIRE(launch.out.starts_with("mpirun -n 8 "));
  // A shell reads the same words again.
  const Outcome again =
      shell("mpirun() { shift 3; printf '%s\\n' \"$@\"; }\n" + launch.out, folder);
  REQUIRE(again.out ==
          "--recipe\ntiny_moe_pretrain\n-ms\n3\n--dump-env\n"
          "dataset.blend=[[a b],null]\nlogger.tensorboard_dir='it is'\n");
}

TEST_CASE("a fraction of auto is chosen for the machine that is named, and the launch names it") {
  const Scratch folder;
  const std::string automatic = recipe("td") +
                                " optimizer.optimizer_cpu_offload=true"
                                " optimizer.optimizer_offload_fraction=auto";
  const Outcome planned = run(1, automatic + " --print-launch --machine gh200", folder);
  INFO(planned.err);
  REQUIRE(planned.code == 0);
  REQUIRE(planned.out.ends_with(" --machine gh200\n"));
  const Outcome plan = run(1, automatic + " --dry-run", folder);
  REQUIRE(plan.out.find("optimizer_offload_fraction: 0  # auto") != std::string::npos);
  REQUIRE(plan.out.find(" --machine h100_sxm\n") != std::string::npos);
  const Outcome nameless = run(1, automatic + " train.train_iters=1", folder);
  REQUIRE(nameless.code == 2);
  REQUIRE(nameless.err.find("--machine") != std::string::npos);
  const Outcome named = run(1, automatic + " train.train_iters=1 --machine gh200", folder);
  INFO(named.err);
  REQUIRE(named.code == 0);
}

TEST_CASE("measuring the machine writes a machine that plans read, and overwrites no other file") {
  const Scratch folder;
  const Outcome measured = run(1, "--measure-machine here", folder, 30);
  INFO(measured.err);
  REQUIRE(measured.code == 0);
  REQUIRE(measured.out.find("--machine ./here") != std::string::npos);
  const Outcome plan = run(1, recipe("td") + " --dry-run --machine ./here", folder);
  REQUIRE(plan.code == 0);
  REQUIRE(plan.out.find("\nmachine here: ") != std::string::npos);
  std::ifstream file(folder.file("here"));
  int rates = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++rates;
    INFO(line);
    REQUIRE(line.find(" # ") != std::string::npos);  // each number says where it comes from
  }
  REQUIRE(rates == 12);
  REQUIRE(run(1, "--measure-machine here", folder, 30).code == 0);
  std::ofstream(folder.file("mine")) << "precious\n";
  const Outcome refused = run(1, "--measure-machine mine", folder, 30);
  REQUIRE(refused.code == 2);
  REQUIRE(refused.err.find("was not written by --measure-machine") != std::string::npos);
  REQUIRE(run(1, "--measure-machine no/such/folder", folder, 30).code == 1);
}

}  // namespace rr::test
