// load(): recipes, overrides, types and origins together.
#include <catch2/catch.hpp>

#include "recipe_fixture.h"

using namespace rr;
using namespace rr::recipe;
using namespace rr::test;

TEST_CASE("the tiny recipes load without a problem") {
  for (const char* name : {"tiny_moe_pretrain", "tiny_gpt_pretrain", "tiny_moe_pretrain_config"}) {
    CAPTURE(name);
    const Recipe recipe = load_named(name);
    CHECK(texts(recipe) == "");
    CHECK(recipe.name == std::string(name).substr(0, std::string(name).find("_config")));
  }
  CHECK(load_named("tiny_moe_pretrain").world_size == 4);
}
