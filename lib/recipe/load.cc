// load(): from a request to a checked Config with origins and problems.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "recipe/apply.h"
#include "recipe/facts.h"
#include "recipe/fields.h"
#include "recipe/scalar.h"
#include "recipe/search.h"
#include "recipe/tree.h"
#include "recipe/yaml.h"

namespace fs = std::filesystem;

namespace rr::recipe {
namespace {

// Makes a relative path absolute; prefixes of data sets are paths too.
struct Absolute {
  fs::path base;

  void operator()(std::string& path) const {
    if (!path.empty() && path[0] != '/') path = (base / path).lexically_normal().string();
  }
  void operator()(std::vector<std::string>& paths) const {
    for (std::string& path : paths) {
      bool is_real = false;  // a weight among prefixes is no path
      if (match_number(path, 0, &is_real) != path.size()) (*this)(path);
    }
  }
  void operator()(Blend& blend) const { (*this)(blend.prefixes); }
  void operator()(std::vector<Blend>& blends) const {
    for (Blend& blend : blends) (*this)(blend);
  }
  template <class T>
  void operator()(std::optional<T>& value) const {
    if (value) (*this)(*value);
  }
  template <class T>
  void operator()(T&) const {}
};

// Returns the keys whose value was refused; they keep their default.
std::set<std::string> take_values(const Node& tree, const fs::path& recipe_folder, Recipe* recipe) {
  const Config initial;
  std::set<std::string> refused;
  std::error_code error;
  const fs::path here = fs::current_path(error);
  for (const Slot& slot : slots()) {
    const std::string& key = slot.field.key;
    const Node* node = select(tree, key);
    if (node == nullptr || node->origin.kind == OriginKind::initial) continue;
    recipe->origins[key] = node->origin;
    Problem problem{Severity::error, key, place_of(node->origin), "", ""};
    const Assigned assigned = assign(slot, recipe->config, *node, &problem);
    if (assigned == Assigned::warned) problem.severity = Severity::warning;
    if (assigned != Assigned::ok) recipe->problems.push_back(problem);
    if (assigned == Assigned::refused) {
      refused.insert(key);
      assign(slot, recipe->config, to_node(slot, initial), &problem);
      continue;
    }
    if (is_path(slot)) {
      const bool in_recipe = node->origin.kind == OriginKind::recipe;
      visit_slot(slot, recipe->config, Absolute{in_recipe ? recipe_folder : here});
    }
    std::string why;
    if (!in_range(slot, recipe->config, &why)) {
      recipe->problems.push_back({Severity::error, key, place_of(node->origin),
                                  fmt::format("{} is {}", value_text(recipe->config, key), why),
                                  ""});
      refused.insert(key);
      assign(slot, recipe->config, to_node(slot, initial), &problem);
    }
  }
  return refused;
}

// A Hugging Face config.json as a preset.
Node read_hf_preset(const Found& file, std::vector<Problem>* problems) {
  try {
    std::string text;
    for (const auto& [key, value] : read_hf_config(file.path)) text += key + ": " + value + '\n';
    Node preset = parse_yaml(text, file.shown, OriginKind::preset, problems);
    set_origin(preset, {OriginKind::preset, file.shown});
    return preset;
  } catch (const UsageError& error) {
    problems->insert(problems->end(), error.problems().begin(), error.problems().end());
    return {};
  }
}

// The preset's keys, or null when none is asked for or it cannot be read.
Node read_preset(const Sources& sources, const std::vector<std::string>& search_paths,
                 std::vector<Problem>* problems) {
  std::vector<Problem> ignored;  // the tree is built again with the preset
  Node tree = build_tree(sources, &ignored);
  interpolate(tree);
  const Node* preset = select(tree, "model.preset");
  if (preset == nullptr || preset->kind != Kind::text) return {};
  const std::optional<Found> found = find_file(preset->text, "configs/models", search_paths);
  if (!found) {
    problems->push_back({Severity::error, "model.preset", place_of(preset->origin),
                         fmt::format("there is no architecture '{}'", preset->text),
                         known_names(preset->text, list_stems("configs/models", search_paths))});
    return {};
  }
  if (fs::path(found->path).extension() == ".json") return read_hf_preset(*found, problems);
  return read_yaml(found->path, found->shown, OriginKind::preset, problems);
}

void take_interpolations(Node* tree, std::vector<Problem>* problems) {
  for (const InterpolationError& error : interpolate(*tree)) {
    problems->push_back({Severity::error, error.key, place_of(error.origin),
                         "the interpolation does not resolve: " + error.what, ""});
  }
}

std::int64_t smallest_world(const Model& model) {
  const auto at_least_one = [](std::int64_t value) {
    return std::clamp<std::int64_t>(value, 1, 1 << 20);
  };
  const std::int64_t tp = at_least_one(model.tensor_model_parallel_size);
  const std::int64_t pp = at_least_one(model.pipeline_model_parallel_size);
  const std::int64_t dense = tp * at_least_one(model.context_parallel_size);
  const std::int64_t expert = at_least_one(model.expert_model_parallel_size) *
                              at_least_one(model.expert_tensor_parallel_size.value_or(tp));
  return pp * std::lcm(dense, expert);
}

// Sentences end before a remedy begins.
void punctuate(Problem* problem) {
  if (problem->remedy.empty() || problem->what.empty()) return;
  if (std::string_view(".?!").find(problem->what.back()) == std::string_view::npos) {
    problem->what += '.';
  }
}

bool worse(const Problem& a, const Problem& b) {
  return static_cast<int>(a.severity) < static_cast<int>(b.severity);
}

}  // namespace

bool Recipe::has_errors() const {
  return std::any_of(problems.begin(), problems.end(),
                     [](const Problem& problem) { return problem.severity == Severity::error; });
}

Recipe load(const Request& request) {
  Recipe recipe;
  const std::vector<std::string> search_paths =
      request.search_paths.empty() ? default_search_paths() : request.search_paths;
  std::optional<Found> found = find_file(request.recipe, "recipes", search_paths);
  if (!found) found = find_file(without_config(request.recipe), "recipes", search_paths);
  if (!found) {
    recipe.problems.push_back(
        {Severity::error, "--recipe", "",
         fmt::format("Recipe '{}' not found in recipes/ or as a file.", request.recipe),
         known_names(without_config(request.recipe), list_stems("recipes", search_paths))});
    return recipe;
  }
  recipe.file = found->path;
  recipe.name = without_config(fs::path(found->path).stem().string());
  const Node file = read_yaml(found->path, found->shown, OriginKind::recipe, &recipe.problems);
  if (file.kind != Kind::map) return recipe;

  Sources sources{nullptr, &file, &request};
  const Node preset = read_preset(sources, search_paths, &recipe.problems);
  if (preset.kind == Kind::map) sources.preset = &preset;
  Node tree = build_tree(sources, &recipe.problems);
  take_interpolations(&tree, &recipe.problems);
  const std::set<std::string> refused =
      take_values(tree, fs::path(found->path).parent_path(), &recipe);

  const std::int64_t asked =
      request.world_size ? *request.world_size : recipe.config.dist.world_size.value_or(0);
  recipe.world_size = static_cast<int>(
      std::min<std::int64_t>(asked > 0 ? asked : smallest_world(recipe.config.model), 1 << 30));
  Facts facts{recipe.config, recipe.origins, recipe.world_size, refused};
  resolve(facts, recipe.name, &recipe.problems);
  check_rules(facts, &recipe.problems);
  for (Problem& problem : recipe.problems) punctuate(&problem);
  std::stable_sort(recipe.problems.begin(), recipe.problems.end(), worse);
  return recipe;
}

}  // namespace rr::recipe
