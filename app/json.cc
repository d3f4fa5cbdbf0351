// Answers as JSON.
#include "app/json.h"

#include <nlohmann/json.hpp>

#include "app/version.h"
#include "plan/planner.h"

namespace rr::app {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& object) {
  return object.dump(2, ' ', false, Json::error_handler_t::replace);
}

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "error";
    case Severity::plan_only:
      return "plan_only";
    case Severity::warning:
      return "warning";
  }
  return "";
}

// `text` with what is not UTF-8 replaced: a path or an argument may hold any bytes.
std::string utf8(const std::string& text) {
  return Json::parse(text_of(Json(text))).get<std::string>();
}

Json array_of(const std::vector<Problem>& problems) {
  Json array = Json::array();
  for (const Problem& problem : problems)
    array.push_back({{"severity", name_of(problem.severity)},
                     {"key", problem.key},
                     {"where", problem.where},
                     {"what", problem.what},
                     {"remedy", problem.remedy}});
  return array;
}

}  // namespace

std::string problems_json(const std::vector<Problem>& problems) {
  return text_of({{"ok", false}, {"problems", array_of(problems)}});
}

std::string validate_json(const recipe::Recipe& recipe, bool ok) {
  return text_of({{"ok", ok},
                  {"recipe", recipe.name},
                  {"file", recipe.file},
                  {"world_size", recipe.world_size},
                  {"problems", array_of(recipe.problems)}});
}

std::string dry_run_json(const recipe::Recipe& recipe, const recipe::Machine& machine,
                         const plan::Plan& plan) {
  Json settings = Json::array();
  for (const recipe::Change& change : recipe::changes(recipe))
    settings.push_back({{"key", change.key},
                        {"value", change.value},
                        {"origin", recipe::to_string(change.origin)}});
  Json object = {{"ok", true},           {"recipe", recipe.name},
                 {"file", recipe.file},  {"machine", machine.name},
                 {"settings", settings}, {"problems", array_of(recipe.problems)}};
  object.update(Json::parse(utf8(plan::to_json(plan, machine))));
  return text_of(object);
}

std::string versions_json() {
  Json object = Json::object();
  for (const auto& [name, version] : versions()) object[name] = version;
  return text_of(object);
}

std::string recipes_json(const std::vector<RecipeRow>& rows) {
  Json array = Json::array();
  for (const RecipeRow& row : rows)
    array.push_back({{"name", row.info.name},
                     {"summary", row.info.summary},
                     {"file", row.info.file},
                     {"model", row.model.empty() ? Json(nullptr) : Json(row.model)},
                     {"parameters", row.parameters ? Json(*row.parameters) : Json(nullptr)},
                     {"ranks", row.ranks},
                     {"precision", row.precision}});
  return text_of(array);
}

}  // namespace rr::app
