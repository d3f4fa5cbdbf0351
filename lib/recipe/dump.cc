// A Config as text: the whole, the changes, one value, the reference file.
#include <fmt/format.h>

#include <filesystem>

#include "recipe/facts.h"
#include "recipe/fields.h"
#include "recipe/tree.h"

namespace rr::recipe {
namespace {

// Paths below the current directory are shown relative to it.
void shorten_paths(Node* node, const std::string& here) {
  if (node->kind == Kind::text && node->text.rfind(here, 0) == 0) node->text.erase(0, here.size());
  for (Node& item : node->items) shorten_paths(&item, here);
}

std::string slot_text(const Slot& slot, const Config& config) {
  Node node = to_node(slot, config);
  if (is_path(slot)) {
    std::error_code error;
    shorten_paths(&node, std::filesystem::current_path(error).string() + "/");
  }
  return yaml_line(node);
}

bool is_changed(const Slot& slot, const Config& config) {
  return yaml_line(to_node(slot, config)) != slot.field.initial;
}

// Calls line(slot) for every field, and header(group) before the first of a group.
template <class Header, class Line>
void for_each_field(Header&& header, Line&& line) {
  std::string open;
  for (const Slot& slot : slots()) {
    const std::size_t dot = slot.field.key.find('.');
    const std::string group = dot == std::string::npos ? "" : slot.field.key.substr(0, dot);
    if (group != open && !group.empty()) header(group);
    open = group;
    line(slot, group.empty() ? "" : "  ",
         slot.field.key.substr(dot == std::string::npos ? 0 : dot + 1));
  }
}

}  // namespace

std::string to_string(const Origin& origin) {
  switch (origin.kind) {
    case OriginKind::initial:
      return "default";
    case OriginKind::preset:
      return "preset " + origin.detail;
    case OriginKind::derived:
      return "derived from " + origin.detail;
    case OriginKind::recipe:
    case OriginKind::environment:
    case OriginKind::flag:
    case OriginKind::override_:
      return place_of(origin);
  }
  return "";
}

std::string value_text(const Config& config, const std::string& key) {
  const Slot* slot = find_slot(key);
  RR_CHECK(slot != nullptr, key);
  return slot_text(*slot, config);
}

std::string dump(const Config& config, const Recipe* recipe) {
  std::string out;
  for_each_field([&out](const std::string& group) { out += group + ":\n"; },
                 [&](const Slot& slot, const char* indent, const std::string& name) {
                   out += fmt::format("{}{}: {}", indent, name, yaml_line(to_node(slot, config)));
                   if (recipe != nullptr && is_changed(slot, config)) {
                     const auto found = recipe->origins.find(slot.field.key);
                     if (found != recipe->origins.end()) {
                       out += fmt::format("  # {}", to_string(found->second));
                     }
                   }
                   out += '\n';
                 });
  return out;
}

std::vector<Change> changes(const Recipe& recipe) {
  std::vector<Change> list;
  for (const Slot& slot : slots()) {
    if (!is_changed(slot, recipe.config)) continue;
    const auto found = recipe.origins.find(slot.field.key);
    list.push_back({slot.field.key, slot_text(slot, recipe.config),
                    found == recipe.origins.end() ? Origin{} : found->second});
  }
  return list;
}

namespace {

const char* support_text(Support support) {
  switch (support) {
    case Support::run:
      return "";
    case Support::plan_only:
      return "plan only";
    case Support::no_effect:
      return "no effect";
  }
  return "";
}

// "int, default 1, >= 1, tokens, plan only"
std::string facts_text(const Field& field) {
  std::string text = fmt::format("{}, default {}", field.type, field.initial);
  const std::string support = support_text(field.support);
  for (const std::string& part : {field.range, field.unit, support}) {
    if (!part.empty()) text += ", " + part;
  }
  return text;
}

std::string explain_group(const std::string& group, const Recipe* recipe) {
  std::string out = group + ":\n";
  for (const Slot& slot : slots()) {
    if (slot.field.key.rfind(group + ".", 0) != 0) continue;
    const std::string value =
        recipe == nullptr ? slot.field.initial : slot_text(slot, recipe->config);
    out += fmt::format("  {} = {}: {}\n", slot.field.key.substr(group.size() + 1), value,
                       slot.field.meaning);
  }
  return out;
}

}  // namespace

std::string explain(const std::string& key, const Recipe* recipe) {
  for (const std::string& group : group_names()) {
    if (group == key) return explain_group(key, recipe);
  }
  const Slot* slot = find_slot(key);
  if (slot == nullptr) {
    throw UsageError(
        {Severity::error, key, "--explain", "there is no such key or group", suggestion(key)});
  }
  const Field& field = slot->field;
  std::string out = fmt::format("{}\n  {}\n", field.key, field.meaning);
  const auto add = [&out](const char* name, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {:<9}{}\n", name, text);
  };
  add("type", field.type);
  add("default", field.initial);
  add("range", field.range);
  add("unit", field.unit);
  switch (field.support) {
    case Support::run:
      break;
    case Support::plan_only:
      add("support", fmt::format("values other than {} can be planned but not run", field.initial));
      break;
    case Support::no_effect:
      add("support", "accepted, but there is nothing here to switch");
      break;
  }
  for (const std::string& rule : rules_about(key)) add("rule", rule);
  if (recipe != nullptr) {
    const auto found = recipe->origins.find(key);
    add("here", fmt::format("{} ({})", slot_text(*slot, recipe->config),
                            to_string(found == recipe->origins.end() ? Origin{} : found->second)));
  }
  return out;
}

std::string reference_yaml() {
  std::string out =
      "# Every key of a recipe with its default. Behind it: type, default, range, unit, support;\n"
      "# then its meaning. Printed by the program; a test compares.\n";
  for_each_field([&out](const std::string& group) { out += fmt::format("\n{}:\n", group); },
                 [&out](const Slot& slot, const char* indent, const std::string& name) {
                   if (*indent == '\0') out += '\n';
                   out +=
                       fmt::format("{}# {}\n{}# {}\n{}{}: {}\n", indent, slot.field.meaning, indent,
                                   facts_text(slot.field), indent, name, slot.field.initial);
                 });
  return out;
}

}  // namespace rr::recipe
