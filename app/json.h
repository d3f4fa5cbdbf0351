// Answers as JSON objects. Text that is not UTF-8 is replaced character by character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "recipe/recipe.h"

namespace rr::app {

// {"ok": false, "problems": [...]}: any question that could not be answered.
std::string problems_json(const std::vector<Problem>& problems);
// {"ok", "recipe", "file", "world_size", "problems"}.
std::string validate_json(const recipe::Recipe& recipe, bool ok);
// {"ok", "recipe", "file", "machine", "settings", "problems"} and everything the plan says.
std::string dry_run_json(const recipe::Recipe& recipe, const recipe::Machine& machine,
                         const plan::Plan& plan);
std::string versions_json();

// A recipe of --list-recipes.
struct RecipeRow {
  recipe::RecipeInfo info;
  std::string model;                       // the preset; empty: the recipe's own
  std::optional<std::int64_t> parameters;  // none: the recipe has errors
  int ranks = 1;
  std::string precision;
};
std::string recipes_json(const std::vector<RecipeRow>& rows);

}  // namespace rr::app
