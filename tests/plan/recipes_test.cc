// Every shipped recipe can be planned, and has the size of the model it is named after.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "plan/planner.h"

using namespace rr;

namespace {

// megatron.md 6.1; DeepSeek, GPT-OSS, Llama 3 and OLMoE as their publishers count them.
const std::map<std::string, std::int64_t> kPublished = {
    {"qwen3_600m_pretrain", 596'049'920},
    {"qwen3_1p7b_pretrain", 1'720'574'976},
    {"qwen3_4b_pretrain", 4'022'468'096},
    {"qwen3_8b_pretrain", 8'190'735'360},
    {"qwen3_8b_pretrain_4gpu_h100_bf16", 8'190'735'360},
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

// GFLOP per token at the recipe's sequence length; megatron.md 6.1 and 6.3.
const std::map<std::string, double> kGflop = {
    {"qwen3_600m_pretrain", 4.985},     {"qwen3_1p7b_pretrain", 11.732},
    {"qwen3_4b_pretrain", 27.758},      {"qwen3_8b_pretrain", 49.032},
    {"qwen3_14b_pretrain", 88.973},     {"qwen3_32b_pretrain", 204.786},
    {"qwen3_30b_a3b_pretrain", 23.006}, {"qwen3_235b_a22b_pretrain", 148.035},
    {"llama3_8b_pretrain", 51.47},      {"llama3_70b_pretrain", 449.2},
    {"mixtral_8x7b_pretrain", 79.7},
};

// What keeps a recipe from running: the keys of its plan-only problems.
const std::map<std::string, std::set<std::string>> kPlannedOnly = {
    {"deepseek_v2_lite_pretrain",
     {"model.multi_latent_attention", "model.moe_shared_expert_intermediate_size",
      "model.moe_router_load_balancing_type", "model.recompute_granularity"}},
    {"gpt_oss_20b_pretrain",
     {"model.softmax_type", "model.window_size", "model.activation_func",
      "model.activation_func_clamp_value", "model.glu_linear_offset", "model.add_bias_linear",
      "model.position_embedding_type", "model.tensor_model_parallel_size",
      "model.sequence_parallel"}},
    {"llama32_1b_pretrain", {}},
    {"qwen3_600m_pretrain", {}},
    {"qwen3_1p7b_pretrain", {}},
};

std::set<std::string> planned_only(const recipe::Recipe& recipe) {
  std::set<std::string> keys;
  for (const Problem& problem : recipe.problems) {
    if (problem.severity == Severity::plan_only) keys.insert(problem.key);
  }
  return keys;
}

}  // namespace

TEST_CASE(
    "every shipped recipe loads and plans, with the published size and what keeps it from a run") {
  const std::vector<std::string> search_paths = {RR_SOURCE_DIR};
  std::size_t known = 0, counted = 0;
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
    } else {
      // A tiny one, or one that stands for a class of models.
      CHECK((info.name.starts_with("tiny_") || info.name == "moe_1t_pretrain"));
    }
    if (const auto it = kGflop.find(info.name); it != kGflop.end()) {
      CHECK(plan.flops_per_token / 1e9 == Approx(it->second).epsilon(0.0005));
      ++counted;
    }
    if (info.name.starts_with("tiny_")) CHECK(planned_only(recipe).empty());
    if (const auto it = kPlannedOnly.find(info.name); it != kPlannedOnly.end()) {
      CHECK(planned_only(recipe) == it->second);
    }
  }
  CHECK(known == kPublished.size());
  CHECK(counted == kGflop.size());
}
