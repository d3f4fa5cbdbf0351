// Values to typed members and back.
#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "recipe/fields.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

// Collects the first complaint about a value.
struct Complaint {
  std::string what;
  std::string remedy;
  bool warned = false;

  bool refuse(const std::string& text, const std::string& hint = "") {
    what = text;
    remedy = hint;
    return false;
  }
};

std::string wants(const Node& node, const char* wanted) {
  return fmt::format("{} is {}, not {}", describe(node), kind_name(node.kind), wanted);
}

bool looks_numeric(const std::string& text) {
  return !text.empty() &&
         (text[0] == '+' || text[0] == '-' || text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
}

bool convert(const Node& node, bool* value, Complaint* complaint) {
  if (node.kind == Kind::boolean) {
    *value = node.boolean;
    if (node.dialect) {
      complaint->warned = true;
      complaint->what = fmt::format("'{}' is read as {} in a recipe, but is text in an override",
                                    node.spelling, node.boolean);
      complaint->remedy = fmt::format("Write {}.", node.boolean);
    }
    return true;
  }
  return complaint->refuse(wants(node, "a truth value"), "Use true or false.");
}

bool convert(const Node& node, std::int64_t* value, Complaint* complaint) {
  if (node.kind == Kind::integer) {
    if (node.too_big) {
      return complaint->refuse(fmt::format("{} does not fit in 64 bits", node.spelling));
    }
    *value = node.integer;
    return true;
  }
  if (node.kind == Kind::real) {
    // 1e3 and 1000.0 are whole numbers; above 2^53 a double no longer tells neighbours apart.
    if (std::isfinite(node.real) && node.real == std::trunc(node.real) &&
        std::fabs(node.real) <= 9007199254740992.0) {
      *value = static_cast<std::int64_t>(node.real);
      return true;
    }
    return complaint->refuse(wants(node, "a whole number"));
  }
  if (node.kind == Kind::text && !node.quoted && looks_numeric(node.text)) {
    return complaint->refuse(
        fmt::format("{} is not a whole number", describe(node)),
        "Write it in decimal, without leading zeros, units or doubled underscores.");
  }
  return complaint->refuse(wants(node, "a whole number"), node.quoted ? "Remove the quotes." : "");
}

bool convert(const Node& node, double* value, Complaint* complaint) {
  if (node.kind == Kind::integer) {
    *value = to_double(node.spelling);
    return true;
  }
  if (node.kind == Kind::real) {
    *value = node.real;
    return true;
  }
  return complaint->refuse(wants(node, "a number"), node.quoted ? "Remove the quotes." : "");
}

bool convert(const Node& node, std::string* value, Complaint* complaint) {
  switch (node.kind) {
    case Kind::text:
      if (node.text.empty()) return complaint->refuse("the text is empty", "Leave the key out.");
      *value = node.text;
      return true;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      *value = node.spelling;  // exactly as written: 007, 1E3, true
      return true;
    case Kind::null:
    case Kind::list:
    case Kind::map:
      break;
  }
  return complaint->refuse(wants(node, "text"));
}

template <class T>
bool convert(const Node& node, std::vector<T>* value, Complaint* complaint) {
  if (node.kind != Kind::list) {
    return complaint->refuse(wants(node, "a list"), node.is_container() || node.kind == Kind::null
                                                        ? ""
                                                        : fmt::format("Use [{}].", describe(node)));
  }
  value->clear();
  for (const Node& item : node.items) {
    T element{};
    if (!convert(item, &element, complaint)) return false;
    value->push_back(std::move(element));
  }
  return true;
}

bool convert(const Node& node, Blend* blend, Complaint* complaint) {
  static constexpr const char* kShape =
      "Use [[prefix, ...], null] or [[prefix, ...], [weight, ...]].";
  if (node.kind != Kind::list || node.items.size() != 2 || node.items[0].kind != Kind::list) {
    return complaint->refuse(fmt::format("{} is not a blend", describe(node)), kShape);
  }
  *blend = {};
  if (!convert(node.items[0], &blend->prefixes, complaint)) return false;
  if (node.items[1].kind != Kind::null) {
    if (!convert(node.items[1], &blend->weights.emplace(), complaint)) return false;
  }
  return true;
}

bool convert(const Node& node, std::vector<Blend>* blends, Complaint* complaint) {
  if (node.kind != Kind::list || node.items.size() != 3) {
    return complaint->refuse(
        fmt::format("{} is not a list of three blends", describe(node)),
        "Give one each for training, validation and test; null leaves one out.");
  }
  blends->assign(3, {});
  for (std::size_t i = 0; i < 3; ++i) {
    if (node.items[i].kind == Kind::null) continue;
    if (!convert(node.items[i], &(*blends)[i], complaint)) return false;
  }
  return true;
}

bool convert(const Node& node, LayerPattern* pattern, Complaint* complaint) {
  *pattern = {};
  if (node.kind != Kind::list) {
    if (!convert(node, &pattern->period, complaint)) return false;
    if (pattern->period < 1) return complaint->refuse("the period is below 1", "Use 1 or more.");
    return true;
  }
  if (!convert(node, &pattern->list, complaint)) return false;
  if (pattern->list.empty())
    return complaint->refuse("the list is empty", "Give 0 or 1 per layer.");
  for (const std::int64_t entry : pattern->list) {
    if (entry != 0 && entry != 1) {
      return complaint->refuse(fmt::format("{} is neither 0 nor 1", entry));
    }
  }
  return true;
}

bool convert(const Node& node, Fraction* fraction, Complaint* complaint) {
  *fraction = {};
  if (node.kind == Kind::text && node.text == "auto") {
    fraction->automatic = true;
    return true;
  }
  if (node.kind == Kind::text) return complaint->refuse(wants(node, "a number or auto"));
  return convert(node, &fraction->value, complaint);
}

// null, and None without quotes as people copy it from Python, leave an optional empty.
template <class T>
bool convert(const Node& node, std::optional<T>* value, Complaint* complaint) {
  const bool none = node.kind == Kind::text && !node.quoted && node.text == "None";
  if (node.kind == Kind::null || none) {
    value->reset();
    if (none && node.origin.kind == OriginKind::recipe) {
      complaint->warned = true;
      complaint->what = "'None' is read as null";
      complaint->remedy = "Write null.";
    }
    return true;
  }
  T inner{};
  if (!convert(node, &inner, complaint)) return false;
  *value = std::move(inner);
  return true;
}

Node node_of(bool value) { return boolean_node(value); }
Node node_of(std::int64_t value) { return integer_node(value); }
Node node_of(double value) { return real_node(value); }
Node node_of(const std::string& value) { return text_node(value); }

template <class T>
Node node_of(const std::vector<T>& values) {
  Node list;
  list.kind = Kind::list;
  for (const T& value : values) list.items.push_back(node_of(value));
  return list;
}

Node node_of(const Blend& blend) {
  Node list;
  list.kind = Kind::list;
  list.items.push_back(node_of(blend.prefixes));
  list.items.push_back(blend.weights ? node_of(*blend.weights) : null_node());
  return list;
}

Node node_of(const std::vector<Blend>& blends) {
  Node list;
  list.kind = Kind::list;
  for (const Blend& blend : blends) {
    list.items.push_back(blend.prefixes.empty() ? null_node() : node_of(blend));
  }
  return list;
}

Node node_of(const LayerPattern& pattern) {
  return pattern.list.empty() ? node_of(pattern.period) : node_of(pattern.list);
}

Node node_of(const Fraction& fraction) {
  return fraction.automatic ? node_of(std::string("auto")) : node_of(fraction.value);
}

template <class T>
Node node_of(const std::optional<T>& value) {
  return value ? node_of(*value) : null_node();
}

bool is_optional(Type type) {
  switch (type) {
    case Type::kOptInt:
    case Type::kOptReal:
    case Type::kOptBool:
    case Type::kOptText:
    case Type::kOptIntList:
    case Type::kOptTextList:
    case Type::kOptBlend:
    case Type::kOptBlendList:
      return true;
    case Type::kInt:
    case Type::kReal:
    case Type::kBool:
    case Type::kText:
    case Type::kIntList:
    case Type::kTextList:
    case Type::kLayerPattern:
    case Type::kFraction:
      return false;
  }
  return false;
}

}  // namespace

Node to_node(const Slot& slot, const Config& config) {
  return visit_slot(slot, const_cast<Config&>(config),
                    [](const auto& value) { return node_of(value); });
}

Assigned assign(const Slot& slot, Config& config, const Node& node, Problem* problem) {
  Complaint complaint;
  if (node.kind == Kind::null && !is_optional(slot.type)) {
    complaint.refuse("null, but the key must have a value",
                     fmt::format("Leave it out for {}.", slot.field.initial));
  } else if (visit_slot(slot, config,
                        [&](auto& value) { return convert(node, &value, &complaint); })) {
    if (!complaint.warned) return Assigned::ok;
    problem->what = complaint.what;
    problem->remedy = complaint.remedy;
    return Assigned::warned;
  }
  problem->what = fmt::format("wants {}: {}", slot.field.type, complaint.what);
  problem->remedy = complaint.remedy;
  return Assigned::refused;
}

}  // namespace rr::recipe
