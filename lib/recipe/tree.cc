// Lays the sources of a recipe over each other.
#include "recipe/tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "recipe/apply.h"
#include "recipe/fields.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

Node default_tree() {
  Node root;
  root.kind = Kind::map;
  const Config initial;
  for (const Slot& slot : slots()) {
    const std::vector<std::string> path = split_key(slot.field.key);
    Node* parent = &root;
    if (path.size() == 2) {
      parent = root.find(path[0]);
      if (parent == nullptr) {
        Node group;
        group.kind = Kind::map;
        root.entries.push_back({text_node(path[0]), std::move(group)});
        parent = &root.entries.back().value;
      }
    }
    parent->entries.push_back({text_node(path.back()), to_node(slot, initial)});
  }
  return root;
}

bool is_group(const std::string& name) {
  const auto& names = group_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

void report_unknown(const std::string& key, const Node& value, std::vector<Problem>* problems) {
  const std::string what = split_key(key).size() == 1 && value.kind == Kind::map
                               ? "there is no such group"
                               : "there is no such key";
  problems->push_back({Severity::error, key, place_of(value.origin), what, suggestion(key)});
}

void set_key(Node* tree, const std::string& key, const Node& value) {
  Node* place = tree;
  for (const std::string& part : split_key(key)) place = place->find(part);
  *place = value;
}

void lay_group(Node* tree, const std::string& group, const Node& values,
               std::vector<Problem>* problems) {
  for (const Entry& entry : values.entries) {
    const std::string key = join_key(group, entry.name());
    if (find_slot(key) != nullptr) {
      set_key(tree, key, entry.value);
    } else {
      report_unknown(key, entry.value, problems);
    }
  }
}

void lay_recipe(Node* tree, const Node& recipe, std::vector<Problem>* problems) {
  for (const Entry& entry : recipe.entries) {
    const std::string name = entry.name();
    if (find_slot(name) != nullptr) {
      set_key(tree, name, entry.value);
    } else if (!is_group(name)) {
      // Private maps that only hold anchors start with an underscore or a dot.
      if (name.rfind("_", 0) == 0 || name.rfind(".", 0) == 0) continue;
      report_unknown(name, entry.value, problems);
    } else if (entry.value.kind == Kind::map) {
      lay_group(tree, name, entry.value, problems);
    } else if (entry.value.kind != Kind::null) {
      problems->push_back({Severity::error, name, place_of(entry.value.origin),
                           fmt::format("the group is {}, not a map of keys", describe(entry.value)),
                           ""});
    }
  }
}

// A value of a flag or an environment variable: text stays literal where the key wants text.
Node outside_value(const Slot* slot, const std::string& text) {
  const bool is_text =
      slot != nullptr && (slot->type == Type::kText || slot->type == Type::kOptText);
  if (is_text) return equals_ignoring_case(text, "null") ? null_node() : text_node(text);
  return parse_override_value(text);
}

void lay_outside(Node* tree, const std::string& key, const std::string& text, const Origin& origin,
                 std::vector<Problem>* problems) {
  const Slot* slot = find_slot(key);
  if (slot == nullptr) {
    problems->push_back(
        {Severity::error, key, place_of(origin), "there is no such key", suggestion(key)});
    return;
  }
  try {
    Node value = outside_value(slot, text);
    set_origin(value, origin);
    set_key(tree, key, value);
  } catch (const OverrideError& error) {
    problems->push_back({Severity::error, key, place_of(origin),
                         fmt::format("'{}' is not a value: {}", text, error.what()), ""});
  }
}

std::string variable_name(const std::string& key) {
  std::string name = "RUN_RECIPE_";
  for (const char c : key) {
    if (c == '.') {
      name += "__";
    } else {
      name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
  }
  return name;
}

// RUN_RECIPE_OPTIMIZER__LR=1e-4 is optimizer.lr. Names without a double underscore are other
// settings of the program.
void lay_environment(Node* tree, std::vector<Problem>* problems) {
  std::map<std::string, std::string> known;
  for (const Slot& slot : slots()) known[variable_name(slot.field.key)] = slot.field.key;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string line = *entry;
    const std::size_t equal = line.find('=');
    if (line.rfind("RUN_RECIPE_", 0) != 0 || equal == std::string::npos) continue;
    const std::string name = line.substr(0, equal);
    const auto found = known.find(name);
    if (found != known.end()) {
      lay_outside(tree, found->second, line.substr(equal + 1), {OriginKind::environment, name},
                  problems);
    } else if (name.find("__") != std::string::npos) {
      std::vector<std::string> names;
      for (const auto& [variable, key] : known) names.push_back(variable);
      const std::vector<std::string> near = nearest(name, names, 1);
      problems->push_back({Severity::error, name, "environment", "there is no key of this name",
                           near.empty() ? "" : fmt::format("Did you mean {}?", near[0])});
    }
  }
}

std::string quote_hint(const std::string& text) {
  const std::size_t equal = text.find('=');
  std::string value;
  for (const char c : text.substr(equal + 1))
    value += c == '\'' ? std::string("\\'") : std::string(1, c);
  return fmt::format("{}'{}'", text.substr(0, equal + 1), value);
}

Problem parse_problem(const std::string& text, const std::string& where,
                      const OverrideError& error) {
  const std::size_t equal = text.find('=');
  const std::string key = equal == std::string::npos ? "" : text.substr(0, equal);
  if (error.is_sweep) {
    return {Severity::error, key, where,
            fmt::format("sweeps are not supported: '{}' gives several values to one key", text),
            fmt::format("Run once per value, write [...] for a list, or {} for text.",
                        quote_hint(text))};
  }
  if (equal == std::string::npos) {
    return {Severity::error, "", where,
            fmt::format("Expected override in KEY=VALUE form, got '{}'", text), ""};
  }
  const bool in_value = error.place > equal;
  return {Severity::error, key, where,
          fmt::format("cannot parse '{}' at character {}: {}", text, error.place + 1, error.what()),
          in_value ? fmt::format("Quote the value: {}.", quote_hint(text)) : ""};
}

Problem apply_problem(const Override& override_, const std::string& where,
                      const ApplyError& error) {
  Problem problem{Severity::error, override_.key, where, error.what(), ""};
  if (error.failure == ApplyFailure::missing) {
    // The message names the missing key, which may lie below the override's.
    const std::string text = error.what();
    const std::size_t begin = text.find('\''), end = text.rfind('\'');
    const std::string key = text.substr(begin + 1, end - begin - 1);
    problem.what += ": there is no such key";
    problem.remedy = suggestion(key);
  } else if (error.failure == ApplyFailure::exists) {
    problem.remedy = fmt::format("Remove the + or write ++{}.", override_.key);
  }
  return problem;
}

// The slot that a key names or lies inside (a list index); empty for a group.
std::string slot_key(const std::string& key) {
  std::string prefix;
  for (const std::string& part : split_key(key)) {
    prefix = join_key(prefix, part);
    if (find_slot(prefix) != nullptr) return prefix;
  }
  return "";
}

void lay_overrides(Node* tree, const std::vector<std::string>& overrides,
                   std::vector<Problem>* problems) {
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const std::string where = fmt::format("override {}", i + 1);
    const Origin origin{OriginKind::override_, where};
    try {
      Override parsed = parse_override(overrides[i]);
      set_origin(parsed.value, origin);
      try {
        apply_override(*tree, parsed);
      } catch (const ApplyError& error) {
        problems->push_back(apply_problem(parsed, where, error));
        continue;
      }
      const std::string slot = slot_key(parsed.key);
      if (Node* found = slot.empty() ? nullptr : const_cast<Node*>(select(*tree, slot))) {
        found->origin = origin;
      }
      const auto [first, is_new] = seen.emplace(parsed.key, i + 1);
      if (!is_new) {
        problems->push_back(
            {Severity::warning, parsed.key, where,
             fmt::format("was already set by override {}; the last one wins", first->second), ""});
        first->second = i + 1;
      }
    } catch (const OverrideError& error) {
      problems->push_back(parse_problem(overrides[i], where, error));
    }
  }
}

// Keys that overrides with + have added without a field behind them, and groups that are none.
void check_known(const Node& tree, std::vector<Problem>* problems) {
  for (const Entry& entry : tree.entries) {
    const std::string name = entry.name();
    if (find_slot(name) != nullptr) continue;
    if (!is_group(name)) {
      report_unknown(name, entry.value, problems);
    } else if (entry.value.kind != Kind::map) {
      problems->push_back({Severity::error, name, place_of(entry.value.origin),
                           fmt::format("the group is {}, not a map of keys", describe(entry.value)),
                           fmt::format("Set its keys: {}.KEY=VALUE.", name)});
    } else {
      for (const Entry& below : entry.value.entries) {
        const std::string key = join_key(name, below.name());
        if (find_slot(key) == nullptr) report_unknown(key, below.value, problems);
      }
    }
  }
}

}  // namespace

std::string place_of(const Origin& origin) {
  switch (origin.kind) {
    case OriginKind::initial:
    case OriginKind::derived:
      return "";
    case OriginKind::preset:
    case OriginKind::recipe:
    case OriginKind::flag:
    case OriginKind::override_:
      return origin.detail;
    case OriginKind::environment:
      return "environment " + origin.detail;
  }
  return "";
}

std::string suggestion(const std::string& key) {
  const std::vector<std::string> path = split_key(key);
  std::vector<std::string> names, same_group, all;
  for (const Slot& slot : slots()) {
    const std::vector<std::string> parts = split_key(slot.field.key);
    all.push_back(slot.field.key);
    // The right name in the wrong group, or without one.
    if (parts.back() == path.back()) names.push_back(slot.field.key);
    if (parts[0] == path[0]) same_group.push_back(slot.field.key);
  }
  for (const std::string& near : nearest(key, same_group, 3)) names.push_back(near);
  if (path.size() == 1) {
    for (const std::string& near : nearest(key, group_names(), 2)) names.push_back(near);
  }
  if (names.empty()) names = nearest(key, all, 3);
  if (names.size() > 3) names.resize(3);
  return names.empty() ? "" : fmt::format("Did you mean {}?", join(names, " or "));
}

Node build_tree(const Sources& sources, std::vector<Problem>* problems) {
  Node tree = default_tree();
  if (sources.preset != nullptr) lay_group(&tree, "model", *sources.preset, problems);
  if (sources.recipe != nullptr) lay_recipe(&tree, *sources.recipe, problems);
  lay_environment(&tree, problems);
  for (const Flag& flag : sources.request->flags) {
    lay_outside(&tree, flag.key, flag.value, {OriginKind::flag, flag.spelling}, problems);
  }
  lay_overrides(&tree, sources.request->overrides, problems);
  check_known(tree, problems);
  return tree;
}

}  // namespace rr::recipe
