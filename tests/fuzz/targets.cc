// The two targets.
#include "fuzz/targets.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "recipe/apply.h"
#include "recipe/fields.h"
#include "recipe/override.h"
#include "recipe/recipe.h"
#include "recipe/yaml.h"

namespace rr::fuzz {
namespace {

using namespace rr::recipe;

[[noreturn]] void broken(const char* promise, const std::string& text) {
  std::fprintf(stderr, "broken promise: %s: %s\n", promise, text.c_str());
  std::abort();
}

void check_problems(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems)
    if (problem.what.empty()) broken("a problem says what is wrong", to_string(problem));
}

// Left out: text beyond ASCII, which may be no UTF-8, integers beyond 64 bits, and what is not
// equal to itself.
bool is_printable(const Node& node) {
  if (node.too_big || (node.kind == Kind::real && std::isnan(node.real))) return false;
  for (const char c : node.text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  for (const Node& item : node.items)
    if (!is_printable(item)) return false;
  for (const Entry& entry : node.entries)
    if (entry.name().size() > 250 || !is_printable(entry.key) || !is_printable(entry.value))
      return false;
  return true;
}

void check_round_trip(const Node& node) {
  if (!is_printable(node)) return;
  const std::string line = "k: " + yaml_line(node);
  std::vector<Problem> problems;
  const Node root = parse_yaml(line, "printed", OriginKind::recipe, &problems);
  const Node* again = root.find("k");
  if (!problems.empty()) broken("a printed value can be read", line + "\n" + problems[0].what);
  if (again == nullptr || !same_value(node, *again)) broken("a printed value reads back", line);
}

// A file of this process in the temporary folder, removed at the end.
class RecipeFile {
 public:
  explicit RecipeFile(const char* name)
      : path_(std::filesystem::temp_directory_path() /
              ("rr_fuzz_" + std::to_string(getpid()) + name)) {}
  ~RecipeFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  RecipeFile(const RecipeFile&) = delete;
  RecipeFile& operator=(const RecipeFile&) = delete;

  std::string write(std::string_view text) const {
    std::ofstream(path_, std::ios::binary).write(text.data(), std::ssize(text));
    return path_.string();
  }

 private:
  std::filesystem::path path_;
};

// A recipe without errors prints as one that loads to the same configuration.
void check_load(const Request& request) {
  const Recipe recipe = load(request);
  check_problems(recipe.problems);
  if (recipe.has_errors()) return;
  static const RecipeFile file("_printed.yaml");
  const std::string text = dump(recipe.config, &recipe);
  Request again;
  again.recipe = file.write(text);
  again.search_paths = request.search_paths;
  again.world_size = recipe.world_size;
  const Recipe reloaded = load(again);
  if (reloaded.has_errors())
    broken("a printed configuration loads", to_string(reloaded.problems[0]) + "\n" + text);
  if (!(reloaded.config == recipe.config)) broken("a printed configuration loads to itself", text);
}

}  // namespace

void override_text(std::string_view text) {
  try {
    const Override parsed = parse_override(text);
    if (parsed.has_value) check_round_trip(parsed.value);
  } catch (const OverrideError& error) {
    if (*error.what() == '\0') broken("an error says what is wrong", std::string(text));
    // Loading takes a hundred times longer; once in a while is enough to see it refused.
    if (text.size() % 16 != 0) return;
  }
  Request request;
  request.recipe = "tiny_moe_pretrain";
  request.overrides.emplace_back(text);
  request.search_paths = {RR_SOURCE_DIR};
  check_load(request);
}

void recipe_text(std::string_view text) {
  std::vector<Problem> problems;
  const Node root = parse_yaml(text, "input", OriginKind::recipe, &problems);
  check_problems(problems);
  if (problems.empty()) check_round_trip(root);
  static const RecipeFile file("_input.yaml");
  Request request;
  request.recipe = file.write(text);
  request.search_paths = {RR_SOURCE_DIR};
  check_load(request);
}

}  // namespace rr::fuzz
