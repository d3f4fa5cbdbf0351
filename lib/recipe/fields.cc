// The table of fields, generated from fields.def.
#include "recipe/fields.h"

#include <map>

namespace rr::recipe {
namespace {

const char* type_text(Type type) {
  switch (type) {
    case Type::kInt:
      return "int";
    case Type::kReal:
      return "real";
    case Type::kBool:
      return "bool";
    case Type::kText:
      return "text";
    case Type::kOptInt:
      return "int?";
    case Type::kOptReal:
      return "real?";
    case Type::kOptBool:
      return "bool?";
    case Type::kOptText:
      return "text?";
    case Type::kIntList:
      return "list of int";
    case Type::kTextList:
      return "list of text";
    case Type::kOptIntList:
      return "list of int?";
    case Type::kOptTextList:
      return "list of text?";
    case Type::kOptBlend:
      return "[[prefix, ...], [weight, ...] or null]?";
    case Type::kOptBlendList:
      return "three of [[prefix, ...], [weight, ...] or null] or null?";
    case Type::kLayerPattern:
      return "int or list of 0 and 1";
    case Type::kFraction:
      return "real or auto";
  }
  return "";
}

Slot make_slot(std::string key, Type type, void* (*at)(Config&), const char* range,
               const char* unit, Support support, const char* meaning) {
  Slot slot;
  slot.field.key = std::move(key);
  slot.field.type = type_text(type);
  slot.field.range = range;
  slot.field.unit = unit;
  slot.field.meaning = meaning;
  slot.field.support = support;
  slot.type = type;
  slot.at = at;
  return slot;
}

void append_slots(std::vector<Slot>* out);

std::vector<Slot> make_slots() {
  std::vector<Slot> table;
  append_slots(&table);
  const Config initial;
  for (Slot& slot : table) slot.field.initial = yaml_line(to_node(slot, initial));
  return table;
}

}  // namespace

const std::vector<Slot>& slots() {
  static const std::vector<Slot> table = make_slots();
  return table;
}

const Slot* find_slot(const std::string& key) {
  static const std::map<std::string, const Slot*> index = [] {
    std::map<std::string, const Slot*> by_key;
    for (const Slot& slot : slots()) by_key[slot.field.key] = &slot;
    return by_key;
  }();
  const auto found = index.find(key);
  return found == index.end() ? nullptr : found->second;
}

const std::vector<Field>& fields() {
  static const std::vector<Field> table = [] {
    std::vector<Field> all;
    for (const Slot& slot : slots()) all.push_back(slot.field);
    return all;
  }();
  return table;
}

const std::vector<std::string>& group_names() {
  static const std::vector<std::string> names = {
#define RR_VALUE(type, name, ...)
#define RR_GROUP_BEGIN(group, Type) #group,
#define RR_FIELD(type, name, ...)
#define RR_GROUP_END(group, Type)
#include "recipe/fields.def"
#undef RR_VALUE
#undef RR_GROUP_BEGIN
#undef RR_FIELD
#undef RR_GROUP_END
  };
  return names;
}

bool is_path(const Slot& slot) { return slot.field.unit == "path"; }

namespace {

void append_slots(std::vector<Slot>* out) {
#define RR_VALUE(type, name, initial, range, unit, support, meaning)                           \
  out->push_back(make_slot(                                                                    \
      #name, Type::k##type, [](Config& config) -> void* { return &config.name; }, range, unit, \
      Support::support, meaning));
#define RR_GROUP_BEGIN(group, Type_)                         \
  {                                                          \
    using Group = recipe::Type_;                             \
    static constexpr Group Config::*kGroup = &Config::group; \
    static constexpr const char* kPrefix = #group ".";
#define RR_FIELD(type, name, initial, range, unit, support, meaning)               \
  out->push_back(make_slot(                                                        \
      std::string(kPrefix) + #name, Type::k##type,                                 \
      [](Config& config) -> void* { return &(config.*kGroup).name; }, range, unit, \
      Support::support, meaning));
#define RR_GROUP_END(group, Type_) }
#include "recipe/fields.def"
#undef RR_VALUE
#undef RR_GROUP_BEGIN
#undef RR_FIELD
#undef RR_GROUP_END
}

}  // namespace
}  // namespace rr::recipe
