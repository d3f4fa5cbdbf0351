// Numbers as text, and the nearest names for a mistyped word.
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace rr {

std::string format_bytes(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = std::fabs(static_cast<double>(bytes));
  const char* sign = bytes < 0 ? "-" : "";
  if (value < 1000) return fmt::format("{}{} B", sign, value);
  int unit = 0;
  // 999.95 would print as 1000.0: such a value belongs to the next unit already.
  while (value >= 999.95 && unit < 6) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{}{:.{}f} {}", sign, value, value < 99.995 ? 2 : 1, kUnits[unit]);
}

std::string format_count(std::int64_t count) {
  const std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string format_real(double value) { return fmt::format("{}", value); }

namespace {

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

// Insertions, deletions, substitutions and swaps of neighbours; case and '-' against '_' are free.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
          folded(a[i - 2]) == folded(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates,
                                 std::size_t limit) {
  const std::size_t bound = 1 + word.size() / 4;
  std::vector<std::pair<std::size_t, std::size_t>> found;  // distance, place
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::size_t longer = std::max(word.size(), candidates[i].size());
    if (longer - std::min(word.size(), candidates[i].size()) > bound) continue;
    const std::size_t distance = edit_distance(word, candidates[i]);
    // A word of which nothing would be left is no hint.
    if (distance <= bound && distance < longer) found.emplace_back(distance, i);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [distance, place] : found) {
    if (names.size() == limit) break;
    names.push_back(candidates[place]);
  }
  return names;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace rr
