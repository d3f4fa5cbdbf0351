// The fuzzers' inputs as a normal test: those kept in corpus/, Hydra's oracle, recipes cut
// anywhere.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fuzz/targets.h"

namespace rr::fuzz {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) found.push_back(entry.path());
  REQUIRE_FALSE(found.empty());
  return found;
}

}  // namespace

TEST_CASE("no override that a fuzzer found, or Hydra was asked about, breaks a promise") {
  for (const auto& path : files_in(RR_SOURCE_DIR "/tests/fuzz/corpus/override"))
    override_text(read_file(path));
  const auto oracle = nlohmann::json::parse(read_file(RR_TEST_DATA "/recipe/hydra_overrides.json"));
  int count = 0;
  for (const auto& row : oracle.at("overrides")) {
    override_text(row.at("in").get<std::string>());
    ++count;
  }
  REQUIRE(count > 1000);
}

TEST_CASE("no recipe that a fuzzer found, or that is cut short anywhere, breaks a promise") {
  for (const auto& path : files_in(RR_SOURCE_DIR "/tests/fuzz/corpus/yaml"))
    recipe_text(read_file(path));
  const std::string whole = read_file(RR_SOURCE_DIR "/recipes/tiny_moe_pretrain.yaml");
  for (std::size_t size = 0; size < whole.size(); size += 37) recipe_text(whole.substr(0, size));
}

}  // namespace rr::fuzz
