// Checks a member against the range that fields.def prints.
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "base/text.h"
#include "recipe/fields.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

// ">= 1", "> 0", "[0, 1]", "(0, 1]", "[0, 1)".
bool number_in_range(double value, const std::string& range) {
  if (range.empty()) return true;
  if (range.rfind(">= ", 0) == 0) return value >= to_double(range.substr(3));
  if (range.rfind("> ", 0) == 0) return value > to_double(range.substr(2));
  const std::size_t comma = range.find(", ");
  RR_CHECK((range[0] == '[' || range[0] == '(') && comma != std::string::npos, range);
  const double low = to_double(range.substr(1, comma - 1));
  const double high = to_double(range.substr(comma + 2, range.size() - comma - 3));
  const bool above = range[0] == '[' ? value >= low : value > low;
  const bool below = range.back() == ']' ? value <= high : value < high;
  return above && below;
}

std::vector<std::string> choices(const std::string& range) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (true) {
    const std::size_t bar = range.find(" | ", begin);
    words.push_back(range.substr(begin, bar - begin));
    if (bar == std::string::npos) return words;
    begin = bar + 3;
  }
}

struct Check {
  const std::string& range;
  std::string why;

  bool operator()(double value) {
    if (number_in_range(value, range)) return true;  // false for nan with any range
    why = "outside " + range;
    return false;
  }
  bool operator()(std::int64_t value) { return (*this)(static_cast<double>(value)); }
  bool operator()(bool) { return true; }
  bool operator()(const std::string& value) {
    if (range.empty()) return true;
    const std::vector<std::string> words = choices(range);
    for (const std::string& word : words) {
      if (word == value) return true;
    }
    const std::vector<std::string> near = nearest(value, words, 1);
    why = fmt::format("not one of {}", range);
    if (!near.empty()) why += fmt::format("; did you mean {}?", near[0]);
    return false;
  }
  template <class T>
  bool operator()(const std::optional<T>& value) {
    return !value || (*this)(*value);
  }
  template <class T>
  bool operator()(const std::vector<T>&) {
    return true;
  }
  bool operator()(const Blend&) { return true; }
  bool operator()(const LayerPattern&) { return true; }
  bool operator()(const Fraction&) { return true; }  // a rule looks at it
};

}  // namespace

bool in_range(const Slot& slot, const Config& config, std::string* why) {
  Check check{slot.field.range, ""};
  if (visit_slot(slot, const_cast<Config&>(config),
                 [&check](const auto& value) { return check(value); })) {
    return true;
  }
  *why = check.why;
  return false;
}

}  // namespace rr::recipe
