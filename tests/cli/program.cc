// Running the program.
#include "cli/program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace rr::test {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Scratch::Scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "rr_cli_XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Outcome shell(const std::string& command, const Scratch& folder, int seconds) {
  const std::string script = folder.file("command.sh");
  std::ofstream(script) << "cd '" << folder.path().string() << "'\n"
                        << "export RR='" RR_BINARY_DIR "/run_recipe'\n"
                        << "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
                        << "export OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=PASSIVE\n"
                        << command << "\n";
  const std::string whole = "timeout -k 5 " + std::to_string(seconds) + " sh '" + script + "' >'" +
                            folder.file("out") + "' 2>'" + folder.file("err") + "'";
  const int status = std::system(whole.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          read_file(folder.file("out")), read_file(folder.file("err"))};
}

Outcome run(int ranks, const std::string& arguments, const Scratch& folder, int seconds) {
  const std::string launcher =
      ranks == 1 ? "" : "mpirun --oversubscribe -n " + std::to_string(ranks) + " ";
  return shell(launcher + "\"$RR\" " + arguments, folder, seconds);
}

std::string recipe(const std::string& name) {
  return "--recipe '" RR_TEST_DATA "/cli/" + name + ".yaml'";
}

std::vector<double> series(const std::filesystem::path& run_folder, const std::string& key) {
  std::ifstream file(run_folder / "metrics.jsonl");
  std::vector<double> values;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object.contains(key)) values.push_back(object.at(key).get<double>());
  }
  return values;
}

Series train_series(int ranks, const std::string& arguments, const Scratch& folder,
                    const std::string& name) {
  const Outcome outcome = run(ranks, arguments + " logger.run_dir=" + name, folder);
  INFO(arguments << "\n" << outcome.err);
  REQUIRE(outcome.code == 0);
  Series result{series(folder.path() / name, "lm loss"), series(folder.path() / name, "grad_norm")};
  REQUIRE(!result.loss.empty());
  REQUIRE(result.norm.size() == result.loss.size());
  return result;
}

void require_close(const Series& actual, const Series& expected, double tolerance) {
  REQUIRE(actual.loss.size() == expected.loss.size());
  for (std::size_t i = 0; i < expected.loss.size(); ++i) {
    INFO("iteration " << i + 1);
    REQUIRE(std::abs(actual.loss[i] - expected.loss[i]) <= tolerance * expected.loss[i]);
    REQUIRE(std::abs(actual.norm[i] - expected.norm[i]) <= tolerance * expected.norm[i]);
  }
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

}  // namespace rr::test
