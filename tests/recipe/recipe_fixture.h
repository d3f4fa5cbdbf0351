// Loads small recipes in tests.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace rr::test {

// All problems, one a line.
inline std::string texts(const recipe::Recipe& recipe) {
  std::string all;
  for (const Problem& problem : recipe.problems) all += to_string(problem) + '\n';
  return all;
}

inline recipe::Recipe load_named(const std::string& name,
                                 const std::vector<std::string>& overrides = {}) {
  recipe::Request request;
  request.recipe = name;
  request.overrides = overrides;
  request.search_paths = {RR_SOURCE_DIR};
  return recipe::load(request);
}

}  // namespace rr::test
