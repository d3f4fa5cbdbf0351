// Every command that the README shows runs as it stands.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "cli/program.h"

namespace rr::test {
namespace {

// The corpus of the tiny recipes, which scripts/run_recipe makes in the source tree.
void make_corpus(const Scratch& folder) {
  const std::string corpus = RR_SOURCE_DIR "/build/data/tiny/corpus";
  const Outcome outcome =
      shell("[ -e '" + corpus + ".idx' ] || \"$RR\" data build --output '" + corpus +
                "' --input '" RR_SOURCE_DIR "'/lib/*/*.cc '" RR_SOURCE_DIR "'/lib/*/*.h",
            folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
}

// Lines of the ```sh blocks.
std::vector<std::string> commands() {
  std::ifstream readme(RR_SOURCE_DIR "/README.md");
  std::vector<std::string> found;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
    } else if (inside) {
      found.push_back(line);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("the commands of the README run as they stand") {
  const Scratch folder;
  REQUIRE(shell("ln -s \"$RR\" run_recipe && cp '" RR_SOURCE_DIR "/README.md' .", folder).code ==
          0);
  make_corpus(folder);
  std::size_t run_here = 0;
  for (std::string command : commands()) {
    // These set up and build; CI itself is their test.
    if (command == "scripts/test" || command == "scripts/run_recipe --recipe tiny_moe_pretrain") {
      continue;
    }
    INFO(command);
    REQUIRE(command.starts_with("run_recipe "));
    const Outcome outcome = shell("PATH=\"$PWD:$PATH\"\n" + command, folder);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    REQUIRE(!outcome.out.empty());
    ++run_here;
  }
  REQUIRE(run_here >= 8);
}

TEST_CASE("the tiny mixture of experts starts at chance and learns the project's own text") {
  const Scratch folder;
  make_corpus(folder);
  const Outcome outcome = run(4,
                              "--recipe tiny_moe_pretrain logger.log_interval=1 "
                              "logger.run_dir=here",
                              folder, 280);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const std::vector<double> loss = series(folder.path() / "here", "lm loss");
  REQUIRE(loss.size() == 200);
  // ln 257 + H sigma^2 / 2: untied, RMSNorm, H 128, sigma 0.02.
  const double expected = 5.5491 + 128 * 0.02 * 0.02 / 2;
  REQUIRE(std::abs(loss.front() - expected) < 0.02 * expected);
  REQUIRE(loss.back() < 2.6);
}

}  // namespace rr::test
