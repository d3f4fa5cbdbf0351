// What the fuzzers call and the replay test calls: any bytes as an override, any bytes as a recipe.
//
// Both run the whole way from text to rules and end normally, or abort on a broken promise: a
// parsed value prints as YAML that reads back to the same value, and every problem says something.
#pragma once

#include <string_view>

namespace rr::fuzz {

void override_text(std::string_view text);
void recipe_text(std::string_view text);

}  // namespace rr::fuzz
