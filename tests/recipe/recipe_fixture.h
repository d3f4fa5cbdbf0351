// Loads small recipes in tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace rr::test {

// A tiny dense model that loads without a problem; one rank.
inline const std::string kDense = R"(model:
  num_layers: 4
  hidden_size: 64
  num_attention_heads: 4
  num_query_groups: 2
  vocab_size: 512
  seq_length: 32
  position_embedding_type: rope
  attention_dropout: 0.0
  hidden_dropout: 0.0
train:
  train_iters: 20
  global_batch_size: 8
  micro_batch_size: 1
optimizer:
  lr: 1.0e-3
)";

// The overrides that make it a mixture of experts.
inline const std::vector<std::string> kMoe = {
    "model.num_moe_experts=8",      "model.moe_router_topk=2",
    "model.moe_ffn_hidden_size=32", "model.moe_token_dispatcher_type=alltoall",
    "model.add_bias_linear=false",  "model.moe_aux_loss_coeff=0.01"};

// All problems, one a line.
inline std::string texts(const recipe::Recipe& recipe) {
  std::string all;
  for (const Problem& problem : recipe.problems) all += to_string(problem) + '\n';
  return all;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The first problem whose text contains `part`; null pointer if none.
inline const Problem* find_problem(const recipe::Recipe& recipe, const std::string& part) {
  for (const Problem& problem : recipe.problems) {
    if (has(to_string(problem), part)) return &problem;
  }
  return nullptr;
}

// A folder that goes away with its object.
class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("rr_recipe_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline recipe::Recipe load_named(const std::string& name,
                                 const std::vector<std::string>& overrides = {},
                                 std::optional<int> world = std::nullopt) {
  recipe::Request request;
  request.recipe = name;
  request.overrides = overrides;
  request.world_size = world;
  request.search_paths = {RR_SOURCE_DIR};
  return recipe::load(request);
}

inline recipe::Recipe load_text(const std::string& text,
                                const std::vector<std::string>& overrides = {},
                                std::optional<int> world = std::nullopt) {
  const TempFolder folder;
  return load_named(folder.write("case.yaml", text), overrides, world);
}

inline std::vector<std::string> joined(std::vector<std::string> a,
                                       const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace rr::test
