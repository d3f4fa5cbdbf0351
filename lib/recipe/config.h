// Config: every setting of a run, as plain structs named like Megatron Bridge's groups.
//
// The members are declared once, in fields.def, together with their default, range, unit, support
// and meaning; this header and the field table of fields.cc are both generated from that list.
// `mixed_precision` is a value of its own, without a group. A key
// whose default is None in the reference is a std::optional here; after resolve() an optional that
// follows from other settings has a value.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace rr::recipe {

using Int = std::int64_t;
using Real = double;
using Bool = bool;
using Text = std::string;
using OptInt = std::optional<std::int64_t>;
using OptReal = std::optional<double>;
using OptBool = std::optional<bool>;
using OptText = std::optional<std::string>;
using IntList = std::vector<std::int64_t>;
using TextList = std::vector<std::string>;
using OptIntList = std::optional<std::vector<std::int64_t>>;
using OptTextList = std::optional<std::vector<std::string>>;

// `dataset.blend`: [[prefix, ...], [weight, ...] | null] in a recipe.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;
  bool operator==(const Blend&) const = default;
};
using OptBlend = std::optional<Blend>;
using OptBlendList = std::optional<std::vector<Blend>>;  // an empty Blend stands for null

// `model.moe_layer_freq`: an int period (layer i is MoE when i % period == 0) or a 0/1 list.
struct LayerPattern {
  std::int64_t period = 1;
  std::vector<std::int64_t> list;  // not empty: one entry per layer, 1 = MoE
  bool operator==(const LayerPattern&) const = default;
};

// `optimizer.optimizer_offload_fraction`: a number, or `auto` until a plan has chosen one.
struct Fraction {
  double value = 0;
  bool automatic = false;
  bool operator==(const Fraction&) const = default;
};

// The reference's default of peft.target_modules.
inline TextList adapter_modules() {
  return {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
}

#define RR_VALUE(type, name, initial, ...)
#define RR_GROUP_BEGIN(group, Type) struct Type {
#define RR_FIELD(type, name, initial, ...) type name = initial;
#define RR_GROUP_END(group, Type)               \
  bool operator==(const Type&) const = default; \
  }                                             \
  ;
#include "recipe/fields.def"
#undef RR_GROUP_BEGIN
#undef RR_FIELD
#undef RR_VALUE
#undef RR_GROUP_END

struct Config {
#define RR_VALUE(type, name, initial, ...) type name = initial;
#define RR_GROUP_BEGIN(group, Type) Type group;
#define RR_FIELD(type, name, initial, ...)
#define RR_GROUP_END(group, Type)
#include "recipe/fields.def"
#undef RR_GROUP_BEGIN
#undef RR_FIELD
#undef RR_VALUE
#undef RR_GROUP_END
  bool operator==(const Config&) const = default;
};

}  // namespace rr::recipe
