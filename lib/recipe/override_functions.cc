// The casting functions of an override: int, float, str, bool, and sort.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "recipe/override.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Python's int("..."): sign, digits with single underscores, leading zeros allowed.
std::optional<Node> parse_int(std::string_view text) {
  text = trimmed(text);
  std::string plain;
  bool last_digit = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == 0 && (c == '+' || c == '-')) {
      plain += c;
    } else if (c >= '0' && c <= '9') {
      plain += c;
      last_digit = true;
      continue;
    } else if (!(c == '_' && last_digit)) {
      return std::nullopt;
    }
    last_digit = false;
  }
  if (!last_digit) return std::nullopt;
  const bool signed_text = plain[0] == '+' || plain[0] == '-';
  std::size_t first = plain.find_first_not_of('0', signed_text ? 1 : 0);
  if (first == std::string::npos) first = plain.size() - 1;
  Node node = plain_scalar((plain[0] == '-' ? "-" : "") + plain.substr(first));
  return node;
}

std::optional<double> parse_float(std::string_view text) {
  text = trimmed(text);
  std::string_view body = text;
  if (!body.empty() && (body[0] == '+' || body[0] == '-')) body.remove_prefix(1);
  if (equals_ignoring_case(body, "infinity")) return text[0] == '-' ? -INFINITY : INFINITY;
  // Leading zeros are fine here, so skip them before the strict grammar looks.
  while (body.size() > 1 && body[0] == '0' && body[1] >= '0' && body[1] <= '9') {
    body.remove_prefix(1);
  }
  bool is_real = false;
  const std::size_t length = match_number(body, 0, &is_real);
  if (length == 0 || length != body.size() || body[0] == '+' || body[0] == '-') return std::nullopt;
  const double value = to_double(body);
  return text[0] == '-' ? -value : value;
}

using Cast = Node (*)(const Node&, std::size_t place);

Node apply_cast(const Node& node, Cast cast, std::size_t place) {
  if (!node.is_container()) return cast(node, place);
  Node result = node;
  for (Node& item : result.items) item = apply_cast(item, cast, place);
  for (Entry& entry : result.entries) entry.value = apply_cast(entry.value, cast, place);
  return result;
}

[[noreturn]] void cannot(const char* what, const Node& node, std::size_t place) {
  throw OverrideError(fmt::format("{}({}) has no value", what, describe(node)), place);
}

Node cast_int(const Node& node, std::size_t place) {
  if (node.kind == Kind::integer) return node;
  if (node.kind == Kind::boolean) return integer_node(node.boolean ? 1 : 0);
  if (node.kind == Kind::real && std::isfinite(node.real)) {
    return plain_scalar(fmt::format("{:.0f}", std::trunc(node.real) + 0.0));
  }
  if (node.kind == Kind::text) {
    if (const auto parsed = parse_int(node.text)) return *parsed;
  }
  cannot("int", node, place);
}

Node cast_float(const Node& node, std::size_t place) {
  if (node.kind == Kind::real) return node;
  if (node.kind == Kind::boolean) return real_node(node.boolean ? 1 : 0);
  if (node.kind == Kind::integer) return real_node(to_double(node.spelling));
  if (node.kind == Kind::text) {
    if (const auto parsed = parse_float(node.text)) return real_node(*parsed);
  }
  cannot("float", node, place);
}

Node cast_str(const Node& node, std::size_t place) {
  switch (node.kind) {
    case Kind::boolean:
      return text_node(node.boolean ? "true" : "false");
    case Kind::integer:
      return text_node(node.too_big ? node.spelling : fmt::format("{}", node.integer));
    case Kind::real:
      return text_node(real_text(node.real));
    case Kind::text:
      return text_node(node.text);
    case Kind::null:
    case Kind::list:
    case Kind::map:
      break;
  }
  cannot("str", node, place);
}

Node cast_bool(const Node& node, std::size_t place) {
  switch (node.kind) {
    case Kind::boolean:
      return node;
    case Kind::null:
      return boolean_node(false);
    case Kind::integer:
      return boolean_node(node.too_big || node.integer != 0);
    case Kind::real:
      return boolean_node(node.real != 0);
    case Kind::text:
      if (equals_ignoring_case(node.text, "true")) return boolean_node(true);
      if (equals_ignoring_case(node.text, "false")) return boolean_node(false);
      break;
    case Kind::list:
    case Kind::map:
      break;
  }
  cannot("bool", node, place);
}

// Less than, as Python orders; nothing for values that it cannot compare.
std::optional<bool> less(const Node& a, const Node& b) {
  const auto number = [](const Node& node) -> std::optional<double> {
    if (node.kind == Kind::integer) return to_double(node.spelling);
    if (node.kind == Kind::real) return node.real;
    if (node.kind == Kind::boolean) return node.boolean ? 1.0 : 0.0;
    return std::nullopt;
  };
  const auto x = number(a), y = number(b);
  if (x && y) return *x < *y;
  if (a.kind == Kind::text && b.kind == Kind::text && a.quoted == b.quoted) return a.text < b.text;
  if (a.kind != Kind::list || b.kind != Kind::list) return std::nullopt;
  for (std::size_t i = 0; i < a.items.size() && i < b.items.size(); ++i) {
    const auto before = less(a.items[i], b.items[i]), behind = less(b.items[i], a.items[i]);
    if (!before || !behind) return std::nullopt;
    if (*before || *behind) return *before;
  }
  return a.items.size() < b.items.size();
}

Node sorted(std::vector<Node> items, bool reverse, std::size_t place) {
  for (const Node& a : items) {
    for (const Node& b : items) {
      if (!less(a, b)) throw OverrideError("sort() cannot compare these values", place);
    }
  }
  std::stable_sort(items.begin(), items.end(), [reverse](const Node& a, const Node& b) {
    return reverse ? *less(b, a) : *less(a, b);
  });
  Node list;
  list.kind = Kind::list;
  list.items = std::move(items);
  return list;
}

Node call_sort(const std::vector<Argument>& arguments, std::size_t place) {
  std::vector<Node> values;
  bool reverse = false;
  for (const Argument& argument : arguments) {
    if (argument.name == "reverse") {
      if (argument.value.kind != Kind::boolean) {
        throw OverrideError("sort(): reverse is true or false", place);
      }
      reverse = argument.value.boolean;
    } else if (argument.name.empty() || argument.name == "list") {
      values.push_back(argument.value);
    } else {
      throw OverrideError(fmt::format("sort() has no argument '{}'", argument.name), place);
    }
  }
  if (values.empty()) throw OverrideError("sort() wants something to sort", place);
  if (values.size() > 1) {
    sorted(values, reverse, place);
    throw OverrideError("sort() of several values is a sweep", place, true);
  }
  return values[0].kind == Kind::list ? sorted(values[0].items, reverse, place) : values[0];
}

}  // namespace

Node call_function(const std::string& name, std::vector<Argument> arguments, std::size_t place) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i].name.empty() && !arguments[i - 1].name.empty()) {
      throw OverrideError("an argument by position follows one by name", place);
    }
  }
  if (name == "sort") return call_sort(arguments, place);
  // As in Hydra, value=null is the same as no value.
  std::erase_if(arguments, [](const Argument& argument) {
    return argument.name == "value" && argument.value.kind == Kind::null;
  });
  static constexpr std::pair<const char*, Cast> kCasts[] = {
      {"int", cast_int}, {"float", cast_float}, {"str", cast_str}, {"bool", cast_bool}};
  for (const auto& [cast_name, cast] : kCasts) {
    if (name != cast_name) continue;
    if (arguments.empty()) throw OverrideError(fmt::format("{}() wants a value", name), place);
    for (const Argument& argument : arguments) {
      if (!argument.name.empty() && (argument.name != "value" || arguments.size() > 1)) {
        throw OverrideError(fmt::format("{}() takes one value", name), place);
      }
    }
    if (arguments.size() > 1) {
      throw OverrideError(fmt::format("{}() of several values is a sweep", name), place, true);
    }
    return apply_cast(arguments[0].value, cast, place);
  }
  throw OverrideError(
      fmt::format("Unknown function '{}'; known are int, float, str, bool and sort", name), place);
}

}  // namespace rr::recipe
