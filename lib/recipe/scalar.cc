// Plain scalars: numbers, truth values, null.
#include "recipe/scalar.h"

#include <fmt/format.h>
#include <locale.h>  // newlocale and strtod_l are POSIX, not in <clocale>
#include <stdlib.h>

#include <cerrno>
#include <charconv>
#include <cmath>

namespace rr::recipe {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

char at(std::string_view text, std::size_t place) {
  return place < text.size() ? text[place] : '\0';
}

// Digits with single underscores between them, from `place`; returns the end.
std::size_t digits(std::string_view text, std::size_t place) {
  if (!is_digit(at(text, place))) return place;
  ++place;
  while (true) {
    if (is_digit(at(text, place))) {
      ++place;
    } else if (at(text, place) == '_' && is_digit(at(text, place + 1))) {
      place += 2;
    } else {
      return place;
    }
  }
}

// A whole number without sign: 0, or digits that do not start with 0.
std::size_t unsigned_number(std::string_view text, std::size_t place) {
  return at(text, place) == '0' ? place + 1 : digits(text, place);
}

std::size_t word(std::string_view text, std::size_t place, std::string_view lower) {
  return equals_ignoring_case(text.substr(place, lower.size()), lower) ? place + lower.size()
                                                                       : place;
}

// inf, nan, or a number with a point or an exponent; `place` when there is none.
std::size_t real_number(std::string_view text, std::size_t place) {
  for (const char* name : {"inf", "nan"}) {
    const std::size_t end = word(text, place, name);
    if (end > place) return end;
  }
  std::size_t end = unsigned_number(text, place);
  bool is_real = false;
  if (at(text, end) == '.') {
    const std::size_t fraction = digits(text, end + 1);
    if (end == place && fraction == end + 1) return place;  // a lone point
    end = fraction;
    is_real = true;
  }
  if (end == place) return place;
  if (at(text, end) == 'e' || at(text, end) == 'E') {
    std::size_t exponent = end + 1;
    if (at(text, exponent) == '+' || at(text, exponent) == '-') ++exponent;
    const std::size_t last = digits(text, exponent);
    if (last > exponent) return last;
  }
  return is_real ? end : place;
}

std::string without_underscores(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != '_') plain += c;
  }
  return plain;
}

}  // namespace

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c =
        text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
    if (c != lower[i]) return false;
  }
  return true;
}

std::size_t match_number(std::string_view text, std::size_t begin, bool* is_real) {
  std::size_t start = begin;
  if (at(text, start) == '+' || at(text, start) == '-') ++start;
  const std::size_t whole = unsigned_number(text, start);
  const std::size_t real = real_number(text, start);
  *is_real = real > whole;
  const std::size_t end = *is_real ? real : whole;
  return end > start ? end - begin : 0;
}

double to_double(std::string_view text) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(without_underscores(text).c_str(), nullptr, c_locale);
}

Node plain_scalar(std::string_view text) {
  Node node = text_node(text);
  bool is_real = false;
  const std::size_t length = match_number(text, 0, &is_real);
  if (length > 0 && length == text.size()) {
    if (is_real) {
      node.kind = Kind::real;
      node.real = to_double(text);
      return node;
    }
    std::string plain = without_underscores(text);
    if (plain[0] == '+') plain.erase(0, 1);
    node.kind = Kind::integer;
    const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), node.integer);
    if (result.ec != std::errc()) {
      node.too_big = true;
      node.spelling = plain;
    }
    return node;
  }
  if (equals_ignoring_case(text, "null")) {
    node.kind = Kind::null;
  } else if (equals_ignoring_case(text, "true") || equals_ignoring_case(text, "false")) {
    node.kind = Kind::boolean;
    node.boolean = text.size() == 4;
  }
  return node;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace rr::recipe
