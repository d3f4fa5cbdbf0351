// Every shipped recipe can be planned, and has the size of the model it is named after.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "plan/planner.h"

using namespace rr;

namespace {

// megatron.md 6.1; DeepSeek, GPT-OSS, Llama 3 and OLMoE as their publishers count them.
const std::map<std::string, std::int64_t> kPublished = {
    {"qwen3_600m_pretrain", 596'049'920},
    {"qwen3_1p7b_pretrain", 1'720'574'976},
    {"qwen3_4b_pretrain", 4'022'468'096},
    {"qwen3_8b_pretrain", 8'190'735'360},
    {"qwen3_14b_pretrain", 14'768'307'200},
    {"qwen3_32b_pretrain", 32'762'123'264},
    {"qwen3_30b_a3b_pretrain", 30'532'122'624},
    {"qwen3_30b_a3b_pretrain_8gpu_h100_bf16", 30'532'122'624},
    {"qwen3_30b_a3b_pretrain_16gpu_h100_bf16", 30'532'122'624},
    {"qwen3_235b_a22b_pretrain", 235'093'634'560},
    {"llama3_8b_pretrain", 8'030'261'248},
    {"llama3_70b_pretrain", 70'553'706'496},
    {"llama3_405b_pretrain", 405'853'388'800},
    {"llama32_1b_pretrain", 1'235'814'400},
    {"mixtral_8x7b_pretrain", 46'702'792'704},
    {"olmoe_7b_pretrain", 6'919'161'856},
    {"deepseek_v2_lite_pretrain", 15'706'484'224},
    {"gpt_oss_20b_pretrain", 20'914'757'184},
};

}  // namespace

TEST_CASE("every shipped recipe has a plan whose JSON parses") {
  const std::vector<std::string> search_paths = {RR_SOURCE_DIR};
  std::size_t known = 0;
  for (const recipe::RecipeInfo& info : recipe::list_recipes(search_paths)) {
    INFO(info.name);
    recipe::Request request;
    request.recipe = info.name;
    request.search_paths = search_paths;
    const recipe::Recipe recipe = recipe::load(request);
    for (const Problem& problem : recipe.problems) UNSCOPED_INFO(to_string(problem));
    REQUIRE_FALSE(recipe.has_errors());
    const recipe::Machine machine = recipe::load_machine("h100_sxm", search_paths);
    const plan::Plan plan = plan::make_plan(recipe, machine);
    CHECK(nlohmann::json::parse(plan::to_json(plan)).at("topology").at("world") ==
          recipe.world_size);
    CHECK(plan.prediction.find("predicted step") != std::string::npos);
    if (const auto it = kPublished.find(info.name); it != kPublished.end()) {
      CHECK(plan.total_parameters == it->second);
      ++known;
    }
  }
  CHECK(known == kPublished.size());
}
