// Resolves ${...} in a tree of values.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "recipe/apply.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

constexpr std::size_t kMaxText = 1 << 20;  // a chain of doublings must not eat the memory

struct Unresolved : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string as_text(const Node& node) {
  switch (node.kind) {
    case Kind::null:
      return "None";
    case Kind::boolean:
      return node.boolean ? "True" : "False";
    case Kind::integer:
      return node.too_big ? node.spelling : fmt::format("{}", node.integer);
    case Kind::real:
      return real_text(node.real);
    case Kind::text:
      return node.text;
    case Kind::list:
    case Kind::map:
      break;
  }
  throw Unresolved(fmt::format("{} cannot stand inside text", kind_name(node.kind)));
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

class Resolver {
 public:
  explicit Resolver(Node& root) : root_(root) {}

  void run(Node& node, const std::string& key) {
    if (node.kind == Kind::text && node.text.find("${") != std::string::npos) {
      try {
        resolve(node, key);
      } catch (const Unresolved& error) {
        errors_.push_back({key, node.origin, error.what()});
      }
      return;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      run(node.items[i], join_key(key, fmt::format("{}", i)));
    }
    for (Entry& entry : node.entries) run(entry.value, join_key(key, entry.name()));
  }

  std::vector<InterpolationError> errors() { return std::move(errors_); }

 private:
  void resolve(Node& node, const std::string& key) {
    if (!active_.insert(key).second) throw Unresolved("refers to itself");
    Node value = expand(node.text, key);
    active_.erase(key);
    value.origin = node.origin;
    node = std::move(value);
  }

  // The value of a text with interpolations.
  Node expand(const std::string& text, const std::string& key) {
    std::string out;
    std::size_t place = 0;
    while (true) {
      const std::size_t begin = text.find("${", place);
      if (begin == std::string::npos) break;
      if (begin > 0 && text[begin - 1] == '\\') {
        out += text.substr(place, begin - 1 - place) + "${";
        place = begin + 2;
        continue;
      }
      const std::size_t end = text.find('}', begin);
      if (end == std::string::npos) throw Unresolved("'${' is never closed");
      const std::string inner = text.substr(begin + 2, end - begin - 2);
      if (inner.find("${") != std::string::npos) {
        throw Unresolved("an interpolation inside an interpolation is not supported");
      }
      Node value = evaluate(trimmed(inner), key);
      if (begin == 0 && end + 1 == text.size()) return value;
      out += text.substr(place, begin - place) + as_text(value);
      if (out.size() > kMaxText) throw Unresolved("the resolved text is too long");
      place = end + 1;
    }
    return text_node(out + text.substr(place));
  }

  Node evaluate(const std::string& inner, const std::string& key) {
    const std::size_t colon = inner.find(':');
    if (colon == std::string::npos) return lookup(absolute(inner, key));
    const std::string name = trimmed(inner.substr(0, colon));
    const std::string rest = inner.substr(colon + 1);
    const std::size_t comma = rest.find(',');
    const std::string first = trimmed(rest.substr(0, comma));
    const bool has_default = comma != std::string::npos;
    const Node fallback = has_default ? plain_scalar(trimmed(rest.substr(comma + 1))) : null_node();
    if (name == "oc.env") {
      if (const char* value = std::getenv(first.c_str())) return plain_scalar(value);
      if (has_default) return fallback;
      throw Unresolved(fmt::format("environment variable '{}' is not set", first));
    }
    if (name == "oc.select") {
      return select(root_, first) != nullptr ? lookup(first) : fallback;
    }
    throw Unresolved(fmt::format("unknown resolver '{}'; known are oc.env and oc.select", name));
  }

  // ".a" is a sibling of `key`, "..a" a sibling of its parent; [0] is .0.
  static std::string absolute(const std::string& name, const std::string& key) {
    std::string path;
    for (const char c : name) {
      if (c == '[') {
        path += '.';
      } else if (c != ']') {
        path += c;
      }
    }
    std::vector<std::string> parts = split_key(key);
    std::size_t dots = 0;
    while (dots < path.size() && path[dots] == '.') ++dots;
    if (dots == 0) return path;
    if (dots > parts.size()) throw Unresolved(fmt::format("'{}' leads above the top", name));
    parts.resize(parts.size() - dots);
    std::string result;
    for (const std::string& part : parts) result = join_key(result, part);
    return join_key(result, path.substr(dots));
  }

  Node lookup(const std::string& path) {
    const Node* found = select(root_, path);
    if (found == nullptr) throw Unresolved(fmt::format("there is no key '{}'", path));
    Node copy = *found;
    resolve_below(copy, path);
    return copy;
  }

  void resolve_below(Node& node, const std::string& key) {
    if (node.kind == Kind::text && node.text.find("${") != std::string::npos) {
      resolve(node, key);
      return;
    }
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      resolve_below(node.items[i], join_key(key, fmt::format("{}", i)));
    }
    for (Entry& entry : node.entries) resolve_below(entry.value, join_key(key, entry.name()));
  }

  Node& root_;
  std::set<std::string> active_;
  std::vector<InterpolationError> errors_;
};

}  // namespace

std::vector<InterpolationError> interpolate(Node& root) {
  Resolver resolver(root);
  resolver.run(root, "");
  return resolver.errors();
}

}  // namespace rr::recipe
