// Text helpers that more than one room needs. Numbers print and parse in the C locale always.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rr {

// 46980000000 -> "46.98 GB" (1 GB = 1e9 bytes, as in the reference), 3 or 4 significant digits.
std::string format_bytes(std::int64_t bytes);
// 30532122624 -> "30,532,122,624".
std::string format_count(std::int64_t count);
// The shortest decimal text that reads back as the same double: 0.1, 1e-04 -> "0.0001", 3e-5 ->
// "3e-05".
std::string format_real(double value);

// Up to `limit` of `candidates` that a mistyped `word` most likely meant, best first (edit distance
// with a bound that grows with the word's length). Empty when nothing is near.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates,
                                 std::size_t limit = 3);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace rr
