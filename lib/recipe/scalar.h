// The one grammar of plain scalars, for recipes and overrides alike.
//
//   whole number  [+-] (0 | digit without leading zero, then digits; single _ between digits)
//   real number   1. .5 5.e3 1e-4 1E+5 inf nan, signs and underscores as above
//   truth value   true, false in any case;  null in any case
//
// 010, 0x10, 1__0, 1_, 1e and the like are text. Reads and prints in the C locale always.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "recipe/node.h"

namespace rr::recipe {

// Length of the longest number that starts at `begin`, 0 if none; `is_real` tells which kind.
std::size_t match_number(std::string_view text, std::size_t begin, bool* is_real);

// `text` as null, truth value, number or text by the grammar above. No surrounding blanks.
Node plain_scalar(std::string_view text);

// `text` without underscores as a double: any C99 decimal spelling, out of range to 0 or inf.
double to_double(std::string_view text);

bool equals_ignoring_case(std::string_view text, std::string_view lower);

// As Python prints a float: 1000.0, 1e-07, inf.
std::string real_text(double value);

}  // namespace rr::recipe
