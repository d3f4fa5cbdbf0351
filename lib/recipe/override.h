// One override, "key=value", in Hydra's grammar (reference/ecosystem.md 3.1): lexer, parser and
// casting functions. Knows nothing about keys.
//
// Stricter than Hydra: sweeps ("a,b", choice, range, interval, glob, tag, shuffle) are refused.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/node.h"

namespace rr::recipe {

enum class OverrideKind : std::uint8_t { change, add, force_add, remove };

struct Override {
  OverrideKind kind = OverrideKind::change;
  std::string key;           // "a.b", or a group "db/mysql"
  bool has_package = false;  // "key@package=value"
  std::string package;
  bool has_value = false;  // false: "~key"
  Node value;
};

// The text is not an override. `place` is the byte where it stopped to be one.
struct OverrideError : std::runtime_error {
  OverrideError(const std::string& what, std::size_t at_byte, bool sweep = false)
      : std::runtime_error(what), place(at_byte), is_sweep(sweep) {}
  std::size_t place;
  bool is_sweep;
};

// Throws OverrideError.
Override parse_override(std::string_view text);
// Just the part behind "=", for flags and environment variables. Throws OverrideError.
Node parse_override_value(std::string_view text);

// int(x), float(x), str(x), bool(x), sort(...): the functions that yield a value.
struct Argument {
  std::string name;  // empty: by position
  Node value;
};
Node call_function(const std::string& name, std::vector<Argument> arguments, std::size_t place);

}  // namespace rr::recipe
