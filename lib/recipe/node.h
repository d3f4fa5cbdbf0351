// A parsed value with its place: what a recipe file, an override or an environment variable says
// before the field list gives it a type. Values, never shared: an alias is a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace rr::recipe {

enum class Kind : std::uint8_t { null, boolean, integer, real, text, list, map };

struct Entry;

struct Node {
  Kind kind = Kind::null;
  bool boolean = false;
  bool too_big = false;  // an integer beyond 64 bits; its digits are the spelling
  bool quoted = false;   // text that was written in quotes: never a number
  bool dialect = false;  // a scalar that YAML dialects read differently: yes, on, 1_000
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::string spelling;  // a plain scalar as it was written
  std::vector<Node> items;
  std::vector<Entry> entries;
  Origin origin;

  // The value under `key` of a map; null pointer when absent or not a map.
  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  bool is_container() const { return kind == Kind::list || kind == Kind::map; }
};

struct Entry {
  Node key;  // a scalar; its spelling or text names the entry
  Node value;
  const std::string& name() const { return key.kind == Kind::text ? key.text : key.spelling; }
};

Node null_node();
Node boolean_node(bool value);
Node integer_node(std::int64_t value);
Node real_node(double value);
Node text_node(std::string_view value);

// "a number", "a list", ... for messages.
const char* kind_name(Kind kind);
// The value as one would write it in an override, shortened to about `limit` bytes for messages.
std::string describe(const Node& node, std::size_t limit = 60);
// Gives every node below `node` the same origin.
void set_origin(Node& node, const Origin& origin);

// One segment more: "" + "a" = "a", "a" + "b" = "a.b".
std::string join_key(std::string_view parent, std::string_view name);
// "a.b.c" -> a, b, c.
std::vector<std::string> split_key(std::string_view key);

}  // namespace rr::recipe
