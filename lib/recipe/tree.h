// The tree of a recipe: every key with its default, then preset, recipe, environment, flags and
// overrides laid over it, each value with its origin.
#pragma once

#include <string>
#include <vector>

#include "recipe/node.h"

namespace rr::recipe {

struct Sources {
  const Node* preset = nullptr;  // keys of the group model; may be absent
  const Node* recipe = nullptr;
  const Request* request = nullptr;
};

Node build_tree(const Sources& sources, std::vector<Problem>* problems);

// "Did you mean ..?" for an unknown key, or empty.
std::string suggestion(const std::string& key);

// Where a value came from, for Problem::where; empty for defaults.
std::string place_of(const Origin& origin);

}  // namespace rr::recipe
