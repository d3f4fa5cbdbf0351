// Lists of overrides on a tree, against what hydra-core 1.3.8 and omegaconf 2.3.1 do.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "recipe/apply.h"

using nlohmann::json;
using namespace rr::recipe;

namespace {

Node from_json(const json& value) {
  if (value.is_null()) return null_node();
  if (value.is_boolean()) return boolean_node(value.get<bool>());
  if (value.is_number_integer()) return integer_node(value.get<std::int64_t>());
  if (value.is_number()) return real_node(value.get<double>());
  if (value.is_string()) return text_node(value.get<std::string>());
  Node node;
  node.kind = value.is_array() ? Kind::list : Kind::map;
  if (value.is_array()) {
    for (const json& item : value) node.items.push_back(from_json(item));
  } else {
    for (const auto& [key, item] : value.items()) {
      node.entries.push_back({text_node(key), from_json(item)});
    }
  }
  return node;
}

bool same(const Node& node, const json& want) { return same_value(node, from_json(want)); }

const char* name_of(ApplyFailure failure) {
  switch (failure) {
    case ApplyFailure::missing:
      return "missing";
    case ApplyFailure::exists:
      return "exists";
    case ApplyFailure::absent:
      return "absent";
    case ApplyFailure::mismatch:
      return "mismatch";
    case ApplyFailure::group:
      return "group";
    case ApplyFailure::merge:
      return "merge";
  }
  return "?";
}

void check_result(const Node& tree, const json& base, const json& row) {
  if (!row.contains("result") || row["result"].is_null()) return;
  std::vector<std::string> removed;
  if (row.contains("removed") && !row["removed"].is_null()) {
    removed = row["removed"].get<std::vector<std::string>>();
  }
  for (const auto& [key, value] : base.items()) {
    const Node* found = tree.find(key);
    if (std::find(removed.begin(), removed.end(), key) != removed.end()) {
      CHECK(found == nullptr);
      continue;
    }
    CAPTURE(key);
    REQUIRE(found != nullptr);
    CHECK(same(*found, row["result"].contains(key) ? row["result"][key] : value));
  }
  for (const auto& [key, value] : row["result"].items()) {
    const Node* found = tree.find(key);
    REQUIRE(found != nullptr);
    CHECK(same(*found, value));
  }
  if (row.contains("resolved")) {
    Node resolved = tree;
    CHECK(interpolate(resolved).empty());
    for (const auto& [key, value] : row["resolved"].items()) {
      CAPTURE(key);
      const Node* found = resolved.find(key);
      REQUIRE(found != nullptr);
      CHECK(same(*found, value));
    }
  }
  if (row.contains("resolve_error") && row["resolve_error"] != "InterpolationToMissingValueError") {
    Node resolved = tree;
    CHECK_FALSE(interpolate(resolved).empty());
  }
}

}  // namespace

TEST_CASE("lists of overrides change a tree as Hydra changes it, or fail at the same one") {
  std::ifstream file(std::string(RR_TEST_DATA) + "/recipe/hydra_apply.json");
  const json oracle = json::parse(file);
  int passed = 0, failed = 0;
  for (const json& row : oracle["cases"]) {
    CAPTURE(row["overrides"].dump());
    Node tree = from_json(oracle["base"]);
    std::size_t at = 0;
    std::string failure;
    try {
      std::vector<Override> parsed;
      for (const json& text : row["overrides"]) {
        parsed.push_back(parse_override(text.get<std::string>()));
      }
      for (; at < parsed.size(); ++at) apply_override(tree, parsed[at]);
    } catch (const OverrideError&) {
      failure = "parse";
    } catch (const ApplyError& error) {
      failure = name_of(error.failure);
    }
    if (row["ok"].get<bool>()) {
      CHECK(failure == "");
      check_result(tree, oracle["base"], row);
      ++passed;
      continue;
    }
    ++failed;
    const std::string want = row["error"];
    // Hydra parses a sweep and refuses it when it is applied; we refuse it at once. Bare Python
    // exceptions are refusals here too.
    if (failure == "parse" && want == "merge") continue;
    CHECK(failure == (want == "TypeError" || want == "ValueError" ? "merge" : want));
    if (row.contains("at")) CHECK(at == row["at"].get<std::size_t>());
  }
  CHECK(passed == 114);
  CHECK(failed == 152);
}

TEST_CASE("a chain of interpolations resolves, a ring is refused") {
  Node tree = from_json({{"a", "${b}"}, {"b", "${c}"}, {"c", 7}, {"x", "${y}"}, {"y", "${x}"}});
  const auto errors = interpolate(tree);
  CHECK(tree.find("a")->integer == 7);
  CHECK(errors.size() == 2);
}
