// Overrides on a tree of values.
#include "recipe/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace rr::recipe {
namespace {

std::size_t list_index(const Node& list, const std::string& name) {
  std::size_t index = 0;
  const auto result = std::from_chars(name.data(), name.data() + name.size(), index);
  if (result.ec != std::errc() || result.ptr != name.data() + name.size()) {
    throw ApplyError(ApplyFailure::merge, fmt::format("'{}' is not a list index", name));
  }
  if (index >= list.items.size()) {
    throw ApplyError(ApplyFailure::merge,
                     fmt::format("list index {} is out of range; the list has {} "
                                 "entries",
                                 index, list.items.size()));
  }
  return index;
}

Node empty_map() {
  Node node;
  node.kind = Kind::map;
  return node;
}

// The child to write to: found, or made when `force`.
Node& child(Node& parent, const std::string& name, bool force, const std::string& key) {
  if (parent.kind == Kind::list) return parent.items[list_index(parent, name)];
  if (Node* found = parent.find(name)) return *found;
  if (!force) throw ApplyError(ApplyFailure::missing, fmt::format("Could not override '{}'", key));
  parent.entries.push_back({text_node(name), null_node()});
  return parent.entries.back().value;
}

void check_map_keys(const Node& value) {
  for (const Entry& entry : value.entries) {
    if (entry.key.kind == Kind::null) {
      throw ApplyError(ApplyFailure::merge, "a map's key cannot be null");
    }
    check_map_keys(entry.value);
  }
  for (const Node& item : value.items) check_map_keys(item);
}

void merge(Node& target, const Node& value, bool force, const std::string& key) {
  if (target.kind != value.kind) {
    throw ApplyError(ApplyFailure::merge, fmt::format("{} cannot replace {}", kind_name(value.kind),
                                                      kind_name(target.kind)));
  }
  if (target.kind == Kind::list) {
    target = value;
    return;
  }
  for (const Entry& entry : value.entries) {
    Node& below = child(target, entry.name(), force, join_key(key, entry.name()));
    if (below.is_container() && entry.value.is_container()) {
      merge(below, entry.value, force, join_key(key, entry.name()));
    } else {
      below = entry.value;
    }
  }
}

void update(Node& root, const std::string& key, const Node& value, bool force) {
  check_map_keys(value);
  const std::vector<std::string> path = split_key(key);
  Node* node = &root;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    node = &child(*node, path[i], force, key);
    if (!node->is_container()) {
      if (!force)
        throw ApplyError(ApplyFailure::missing, fmt::format("Could not override '{}'", key));
      *node = empty_map();
    }
  }
  Node& last = child(*node, path.back(), force, key);
  if (value.is_container() && last.is_container()) {
    merge(last, value, force, key);
  } else {
    last = value;
  }
}

void remove(Node& root, const Override& override_) {
  const std::string& key = override_.key;
  const Node* found = select(root, key);
  if (key.empty() || found == nullptr || found->kind == Kind::null) {
    throw ApplyError(ApplyFailure::absent,
                     fmt::format("Could not delete from config. '{}' does not exist.", key));
  }
  const bool wants = override_.has_value && override_.value.kind != Kind::null;
  Node resolved = *found;
  if (wants && found->kind == Kind::text && found->text.find("${") != std::string::npos) {
    Node copy = root;
    interpolate(copy);
    if (const Node* there = select(copy, key)) resolved = *there;
  }
  if (wants && !same_value(resolved, override_.value)) {
    throw ApplyError(
        ApplyFailure::mismatch,
        fmt::format("Could not delete from config. The value of '{}' is {} and not {}.", key,
                    describe(resolved), describe(override_.value)));
  }
  std::vector<std::string> path = split_key(key);
  const std::string name = path.back();
  path.pop_back();
  Node* parent = &root;
  for (const std::string& part : path) parent = &child(*parent, part, false, key);
  if (parent->kind == Kind::list) {
    throw ApplyError(ApplyFailure::merge, "one entry of a list cannot be deleted; set the list");
  }
  std::erase_if(parent->entries, [&name](const Entry& entry) { return entry.name() == name; });
}

}  // namespace

bool same_value(const Node& a, const Node& b) {
  const auto number = [](const Node& node) {
    if (node.kind == Kind::boolean) return node.boolean ? 1.0 : 0.0;
    return node.kind == Kind::integer ? static_cast<double>(node.integer) : node.real;
  };
  const auto is_number = [](const Node& node) {
    return node.kind == Kind::integer || node.kind == Kind::real || node.kind == Kind::boolean;
  };
  if (is_number(a) && is_number(b)) return number(a) == number(b);
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::text) return a.text == b.text;
  if (a.kind == Kind::list) {
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value);
  }
  if (a.kind != Kind::map) return true;
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&b](const Entry& entry) {
    const Node* other = b.find(entry.name());
    return other != nullptr && same_value(entry.value, *other);
  });
}

const Node* select(const Node& root, const std::string& key) {
  const Node* node = &root;
  if (key.empty()) return node;
  for (const std::string& name : split_key(key)) {
    if (node->kind == Kind::list) {
      std::size_t index = 0;
      const auto result = std::from_chars(name.data(), name.data() + name.size(), index);
      if (result.ec != std::errc() || result.ptr != name.data() + name.size()) return nullptr;
      if (index >= node->items.size()) return nullptr;
      node = &node->items[index];
    } else {
      node = node->find(name);
      if (node == nullptr) return nullptr;
    }
  }
  return node;
}

void apply_override(Node& root, const Override& override_) {
  const std::string& key = override_.key;
  if (override_.has_package) {
    throw ApplyError(ApplyFailure::group,
                     fmt::format("'{}' looks like a config group override; there are none", key));
  }
  switch (override_.kind) {
    case OverrideKind::remove:
      return remove(root, override_);
    case OverrideKind::add: {
      const Node* found = select(root, key);
      const bool taken = found != nullptr && found->kind != Kind::null;
      if (taken && !override_.value.is_container()) {
        throw ApplyError(
            ApplyFailure::exists,
            fmt::format("Could not append to config. An item is already at '{}'.", key));
      }
      return update(root, key, override_.value, true);
    }
    case OverrideKind::force_add:
      return update(root, key, override_.value, true);
    case OverrideKind::change:
      return update(root, key, override_.value, false);
  }
}

}  // namespace rr::recipe
