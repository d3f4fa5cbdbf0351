// Finds recipes, presets and machines in the search paths.
#include "recipe/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/text.h"
#include "recipe/recipe.h"

namespace fs = std::filesystem;

namespace rr::recipe {
namespace {

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_directory(path, error);
}

std::string shown(const fs::path& path, const fs::path& base) {
  std::error_code error;
  for (const fs::path& from : {fs::current_path(error), base}) {
    const std::string relative = path.lexically_relative(from).string();
    if (!relative.empty() && relative.rfind("..", 0) != 0) return relative;
  }
  return path.string();
}

fs::path absolute(const fs::path& path) {
  std::error_code error;
  const fs::path result = fs::absolute(path, error);
  return (error ? path : result).lexically_normal();
}

}  // namespace

std::vector<std::string> default_search_paths() {
  std::vector<std::string> paths;
  if (const char* home = std::getenv("RUN_RECIPE_HOME"); home != nullptr && *home != '\0') {
    paths.emplace_back(home);
  }
  paths.emplace_back(RR_SOURCE_DIR);
  paths.emplace_back(".");
  return paths;
}

std::string without_config(const std::string& name) {
  static constexpr std::string_view kEnding = "_config";
  const bool ends = name.size() > kEnding.size() &&
                    name.compare(name.size() - kEnding.size(), kEnding.size(), kEnding) == 0;
  return ends ? name.substr(0, name.size() - kEnding.size()) : name;
}

std::optional<Found> find_file(const std::string& name, const std::string& folder,
                               const std::vector<std::string>& search_paths) {
  if (name.find('/') != std::string::npos || fs::path(name).extension() == ".yaml" ||
      fs::path(name).extension() == ".yml") {
    const fs::path path = absolute(name);
    if (!is_file(path)) return std::nullopt;
    return Found{path.string(), shown(path, path.parent_path())};
  }
  for (const std::string& search_path : search_paths) {
    const fs::path base = absolute(search_path);
    const fs::path path = base / folder / (name + ".yaml");
    if (is_file(path)) return Found{path.string(), shown(path, base)};
  }
  return std::nullopt;
}

std::vector<std::string> list_stems(const std::string& folder,
                                    const std::vector<std::string>& search_paths) {
  std::set<std::string> stems;
  for (const std::string& search_path : search_paths) {
    std::error_code error;
    for (fs::directory_iterator it(fs::path(search_path) / folder, error), end; !error && it != end;
         it.increment(error)) {
      if (it->path().extension() == ".yaml") stems.insert(it->path().stem().string());
    }
  }
  return {stems.begin(), stems.end()};
}

std::string known_names(const std::string& name, const std::vector<std::string>& stems) {
  const std::vector<std::string> near = nearest(name, stems, 3);
  if (!near.empty()) return fmt::format("Did you mean {}?", join(near, " or "));
  if (stems.empty()) return "";
  return fmt::format("Known are {}.", join(stems, ", "));
}

std::vector<RecipeInfo> list_recipes(const std::vector<std::string>& search_paths) {
  std::vector<RecipeInfo> recipes;
  for (const std::string& stem : list_stems("recipes", search_paths)) {
    const std::optional<Found> found = find_file(stem, "recipes", search_paths);
    if (!found) continue;
    RecipeInfo info{stem, "", found->path};
    std::ifstream file(found->path);
    std::string line;
    std::getline(file, line);
    if (line.rfind("#", 0) == 0) info.summary = line.substr(line.find_first_not_of("# "));
    recipes.push_back(std::move(info));
  }
  return recipes;
}

}  // namespace rr::recipe
