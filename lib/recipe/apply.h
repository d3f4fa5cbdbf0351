// Applies overrides to a tree of values as Hydra does on a struct config, and resolves ${...}.
//
// A map value is merged key by key, a list replaces a list, anything else replaces. A key that does
// not exist can only be added with + or ++.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "recipe/node.h"
#include "recipe/override.h"

namespace rr::recipe {

enum class ApplyFailure : std::uint8_t { missing, exists, absent, mismatch, group, merge };

struct ApplyError : std::runtime_error {
  ApplyError(ApplyFailure why, const std::string& what) : std::runtime_error(what), failure(why) {}
  ApplyFailure failure;
};

// Throws ApplyError; the tree may then be half changed.
void apply_override(Node& root, const Override& override_);

struct InterpolationError {
  std::string key;
  Origin origin;
  std::string what;
};

// Replaces ${a.b}, ${.sibling}, ${oc.env:NAME}, ${oc.env:NAME,default} and ${oc.select:a.b,default}
// in every text below `root`. A text that is one interpolation takes the other value, kind
// included; an environment variable is read as a plain scalar. \${ stays ${.
std::vector<InterpolationError> interpolate(Node& root);

// The value at a dotted key, list indices included; null pointer when there is none.
const Node* select(const Node& root, const std::string& key);

bool same_value(const Node& a, const Node& b);

}  // namespace rr::recipe
