// What resolve and the rules look at: a Config, where its values came from, and the world.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "recipe/fields.h"
#include "recipe/recipe.h"

namespace rr::recipe {

struct Facts {
  Config& config;
  std::map<std::string, Origin>& origins;
  int world = 1;
  std::set<std::string> refused = {};  // keys whose value was no value; they hold their default

  OriginKind origin(const std::string& key) const {
    const auto found = origins.find(key);
    return found == origins.end() ? OriginKind::initial : found->second.kind;
  }
  // Set by a person: recipe, environment, flag or override.
  bool is_set(const std::string& key) const {
    switch (origin(key)) {
      case OriginKind::initial:
      case OriginKind::preset:
      case OriginKind::derived:
        return false;
      case OriginKind::recipe:
      case OriginKind::environment:
      case OriginKind::flag:
      case OriginKind::override_:
        return true;
    }
    return false;
  }
  std::string value(const std::string& key) const { return value_text(config, key); }
  // "key=value".
  std::string show(const std::string& key) const { return key + "=" + value(key); }
  std::string where(const std::string& key) const;
};

// Fills and derives; contradictions between set values are problems.
void resolve(Facts& facts, const std::string& recipe_name, std::vector<Problem>* problems);

// All rules, in their order, and the generic ones: plan-only keys, keys without effect. A rule that
// names a refused key is silent.
void check_rules(Facts& facts, std::vector<Problem>* problems);

// One line per rule that names `key`.
std::vector<std::string> rules_about(const std::string& key);

}  // namespace rr::recipe
