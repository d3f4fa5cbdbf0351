// Golden plans: what --dry-run prints for the command in a file's first line. Adding one needs no
// C++: write a file with the command alone, update, read what came out.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "plan/planner.h"

using namespace rr;
namespace fs = std::filesystem;

namespace {

const fs::path kFolder = fs::path(RR_TEST_DATA) / "plan" / "goldens";
constexpr const char* kUpdate = "RR_UPDATE_GOLDENS";

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Neither where the tree lies, nor from where the tests are started, nor on which line of a recipe
// a value stands belongs in a golden.
std::string without_places(const std::string& text) {
  const std::string source = RR_SOURCE_DIR;
  std::string clean = text;
  for (std::size_t at; (at = clean.find(source)) != std::string::npos;) {
    clean.replace(at, source.size(), "SOURCE");
  }
  clean = std::regex_replace(clean, std::regex("tests/data/plan/recipes/"), "recipes/");
  return std::regex_replace(clean, std::regex("\\.yaml:[0-9]+"), ".yaml");
}

// "# run_recipe --recipe NAME [--world-size N] [--machine NAME] [key=value ...]".
std::string dry_run(const std::string& command) {
  std::istringstream words(command);
  std::string word;
  recipe::Request request;
  std::string machine_name;
  request.search_paths = {std::string(RR_TEST_DATA) + "/plan", RR_SOURCE_DIR};
  words >> word >> word;
  REQUIRE(word == "run_recipe");
  while (words >> word) {
    if (word == "--recipe") {
      words >> request.recipe;
    } else if (word == "--world-size") {
      int size = 0;
      words >> size;
      request.world_size = size;
    } else if (word == "--machine") {
      words >> machine_name;
    } else {
      request.overrides.push_back(word);
    }
  }
  const recipe::Recipe recipe = recipe::load(request);
  for (const Problem& problem : recipe.problems) UNSCOPED_INFO(to_string(problem));
  REQUIRE_FALSE(recipe.has_errors());
  const recipe::Machine machine = machine_name.empty()
                                      ? recipe::Machine{}
                                      : recipe::load_machine(machine_name, request.search_paths);
  return without_places(plan::to_text(plan::make_plan(recipe, machine)));
}

// The first line that differs, with its neighbours, old before new.
std::string difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string line_a, line_b;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "";
    if (more_a != more_b || line_a != line_b) {
      return "line " + std::to_string(number) + "\n- " + (more_a ? line_a : "(end)") + "\n+ " +
             (more_b ? line_b : "(end)") + "\n";
    }
  }
}

}  // namespace

TEST_CASE("golden plans do not change unnoticed") {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kFolder)) files.insert(entry.path());
  REQUIRE(files.size() >= 3);
  for (const fs::path& path : files) {
    const std::string expected = read_file(path);
    const std::string command = expected.substr(0, expected.find('\n'));
    INFO(path.filename().string() << ": " << command);
    const std::string actual = command + "\n" + dry_run(command);
    if (std::getenv(kUpdate) != nullptr) {
      std::ofstream(path) << actual;
      continue;
    }
    const std::string changed = difference(expected, actual);
    INFO(changed << "If this is meant: run the tests once with " << kUpdate
                 << "=1, and read the diff.");
    CHECK(changed.empty());
  }
}
