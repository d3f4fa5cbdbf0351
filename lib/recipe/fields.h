// The field list as a table: for every key its description, its type and its place in a Config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/node.h"
#include "recipe/recipe.h"

namespace rr::recipe {

// Named like the types of fields.def, with a k.
enum class Type : std::uint8_t {
  kInt,
  kReal,
  kBool,
  kText,
  kOptInt,
  kOptReal,
  kOptBool,
  kOptText,
  kIntList,
  kTextList,
  kOptIntList,
  kOptTextList,
  kOptBlend,
  kOptBlendList,
  kLayerPattern,
  kFraction,
};

struct Slot {
  Field field;
  Type type = Type::kInt;
  void* (*at)(Config& config) = nullptr;
};

const std::vector<Slot>& slots();
// Null pointer for an unknown key.
const Slot* find_slot(const std::string& key);
// "train", "model", ... without mixed_precision, which is a key itself.
const std::vector<std::string>& group_names();

bool is_path(const Slot& slot);

// Calls visit(value) with a reference to the slot's member, typed.
template <class Visit>
decltype(auto) visit_slot(const Slot& slot, Config& config, Visit&& visit) {
  void* place = slot.at(config);
  switch (slot.type) {
#define RR_CASE(type) \
  case Type::k##type: \
    return visit(*static_cast<recipe::type*>(place));
    RR_CASE(Int)
    RR_CASE(Real)
    RR_CASE(Bool)
    RR_CASE(Text)
    RR_CASE(OptInt)
    RR_CASE(OptReal)
    RR_CASE(OptBool)
    RR_CASE(OptText)
    RR_CASE(IntList)
    RR_CASE(TextList)
    RR_CASE(OptIntList)
    RR_CASE(OptTextList)
    RR_CASE(OptBlend)
    RR_CASE(OptBlendList)
    RR_CASE(LayerPattern)
    RR_CASE(Fraction)
#undef RR_CASE
  }
  fail_check("a slot has a type", __FILE__, __LINE__, slot.field.key);
}

// The member as a value; to_node and assign are inverse to each other.
Node to_node(const Slot& slot, const Config& config);

// Puts `node` into the member or says what is wrong: what and remedy of `problem` are set, nothing
// else. Also notes a word that dialects read differently as a warning.
enum class Assigned : std::uint8_t { ok, refused, warned };
Assigned assign(const Slot& slot, Config& config, const Node& node, Problem* problem);

// Is the value inside the field's printed range? On false, `why` completes "VALUE is ..".
bool in_range(const Slot& slot, const Config& config, std::string* why);

// A value as one line of YAML that reads back to the same value.
std::string yaml_line(const Node& node);

}  // namespace rr::recipe
