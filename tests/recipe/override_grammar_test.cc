// The override grammar against what hydra-core 1.3.8 says about 1188 strings.
//
// Where ours is stricter, on purpose: sweeps are refused, at any depth. Nothing else differs here;
// what a key accepts is decided later by its type.
#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "recipe/override.h"

using nlohmann::json;
using namespace rr::recipe;

namespace {

json read_json(const std::string& name) {
  std::ifstream file(std::string(RR_TEST_DATA) + "/recipe/" + name);
  REQUIRE(file.good());
  return json::parse(file);
}

// True when `node` is what the oracle recorded.
bool same(const Node& node, const json& want) {
  const std::string kind = want["kind"];
  if (kind == "null") return node.kind == Kind::null;
  if (kind == "bool")
    return node.kind == Kind::boolean && node.boolean == want["value"].get<bool>();
  if (kind == "int") {
    if (node.kind != Kind::integer) return false;
    if (want.contains("text")) return node.too_big && node.spelling == want["text"];
    return !node.too_big && node.integer == want["value"].get<std::int64_t>();
  }
  if (kind == "float") {
    if (node.kind != Kind::real) return false;
    if (want["bits"] == "nan") return std::isnan(node.real);
    return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(node.real)) == want["bits"];
  }
  if (kind == "str" || kind == "quoted") {
    return node.kind == Kind::text && node.text == want["value"] &&
           node.quoted == (kind == "quoted");
  }
  if (kind == "list") {
    if (node.kind != Kind::list || node.items.size() != want["items"].size()) return false;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      if (!same(node.items[i], want["items"][i])) return false;
    }
    return true;
  }
  if (kind == "dict") {
    if (node.kind != Kind::map || node.entries.size() != want["items"].size()) return false;
    for (std::size_t i = 0; i < node.entries.size(); ++i) {
      if (!same(node.entries[i].key, want["items"][i][0])) return false;
      if (!same(node.entries[i].value, want["items"][i][1])) return false;
    }
    return true;
  }
  FAIL("unknown kind in the oracle: " << kind);
  return false;
}

const char* kind_text(OverrideKind kind) {
  switch (kind) {
    case OverrideKind::change:
      return "CHANGE";
    case OverrideKind::add:
      return "ADD";
    case OverrideKind::force_add:
      return "FORCE_ADD";
    case OverrideKind::remove:
      return "DELETE";
  }
  return "?";
}

}  // namespace

TEST_CASE("every override string parses to Hydra's value or is refused as Hydra refuses it") {
  const json oracle = read_json("hydra_overrides.json");
  int compared = 0, refused = 0, sweeps = 0;
  for (const json& row : oracle["overrides"]) {
    const std::string text = row["in"];
    CAPTURE(text);
    const bool is_sweep =
        row["ok"] && (row.value("sweep", false) || row.value("nested_sweep", false));
    try {
      const Override parsed = parse_override(text);
      REQUIRE(row["ok"].get<bool>());
      REQUIRE_FALSE(is_sweep);
      CHECK(kind_text(parsed.kind) == row["type"].get<std::string>());
      CHECK(parsed.key == row["key"].get<std::string>());
      CHECK(parsed.has_package == !row["package"].is_null());
      if (!row["package"].is_null()) CHECK(parsed.package == row["package"].get<std::string>());
      const bool has_value = row["value"]["kind"] != "none";
      CHECK(parsed.has_value == has_value);
      if (has_value) CHECK(same(parsed.value, row["value"]));
      ++compared;
    } catch (const OverrideError& error) {
      CAPTURE(error.what());
      CHECK(is_sweep == (row["ok"].get<bool>()));
      // A sweep is called a sweep.
      if (is_sweep) {
        CHECK(error.is_sweep);
        ++sweeps;
      } else {
        CHECK_FALSE(row["ok"].get<bool>());
        ++refused;
      }
      CHECK(error.place <= text.size());
    }
  }
  CHECK(compared == 741);
  CHECK(sweeps == 136);
  CHECK(refused == 311);
}

TEST_CASE("deep brackets in an override are refused, not a crash") {
  for (const char bracket : {'[', '{', '('}) {
    CHECK_THROWS_AS(parse_override("a=" + std::string(100000, bracket)), OverrideError);
  }
  std::string text = "a=";
  for (int i = 0; i < 50000; ++i) text += "int(";
  CHECK_THROWS_AS(parse_override(text), OverrideError);
}
