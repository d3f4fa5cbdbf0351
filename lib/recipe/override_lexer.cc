// Cuts an override into tokens.
#include "recipe/override_lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipe/override.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::size_t skip_blanks(std::string_view text, std::size_t place) {
  while (place < text.size() && is_blank(text[place])) ++place;
  return place;
}

std::size_t identifier(std::string_view text, std::size_t place) {
  if (place >= text.size() || !(is_letter(text[place]) || text[place] == '_')) return place;
  while (place < text.size() &&
         (is_letter(text[place]) || is_digit(text[place]) || text[place] == '_')) {
    ++place;
  }
  return place;
}

// As an identifier, with - and $ too.
std::size_t special(std::string_view text, std::size_t place) {
  const auto first = [](char c) { return is_letter(c) || c == '_' || c == '$'; };
  if (place >= text.size() || !first(text[place])) return place;
  while (place < text.size() &&
         (first(text[place]) || is_digit(text[place]) || text[place] == '-')) {
    ++place;
  }
  return place;
}

// One segment of a dotted path: a special name or a whole number without leading zero.
std::size_t segment(std::string_view text, std::size_t place) {
  if (place < text.size() && is_digit(text[place])) {
    bool is_real = false;
    const std::size_t end = text.find_first_not_of("0123456789_", place);
    return place + match_number(text.substr(0, std::min(end, text.size())), place, &is_real);
  }
  return special(text, place);
}

std::size_t dotted(std::string_view text, std::size_t place) {
  std::size_t end = segment(text, place);
  if (end == place) return place;
  std::size_t last = place;
  while (end < text.size() && text[end] == '.') {
    const std::size_t next = segment(text, end + 1);
    if (next == end + 1) break;
    last = end = next;
  }
  return last;
}

[[noreturn]] void no_token(std::string_view text, std::size_t place, bool in_key) {
  std::size_t end = place + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) ++end;
  const std::string_view character = text.substr(place, end - place);
  if (in_key) {
    throw OverrideError(fmt::format("'{}' cannot stand in a key", character), place);
  }
  throw OverrideError(fmt::format("'{}' cannot stand in a value without quotes", character), place);
}

// The end of a quoted string that starts at `place`: the first quote behind an even number of
// backslashes.
std::size_t quoted_end(std::string_view text, std::size_t place) {
  const char quote = text[place];
  std::size_t backslashes = 0;
  for (std::size_t i = place + 1; i < text.size(); ++i) {
    if (text[i] == quote && backslashes % 2 == 0) return i + 1;
    backslashes = text[i] == '\\' ? backslashes + 1 : 0;
  }
  throw OverrideError(
      fmt::format("the {} quote is never closed", quote == '"' ? "double" : "single"), place);
}

struct Match {
  TokenKind kind = TokenKind::end;
  std::size_t end = 0;
  void longer(TokenKind other, std::size_t other_end) {
    if (other_end > end) {
      kind = other;
      end = other_end;
    }
  }
};

// Separators, with the blanks that belong to them.
void match_separator(std::string_view text, std::size_t place, Match* match) {
  const std::size_t start = skip_blanks(text, place);
  if (start >= text.size()) return;
  const std::size_t behind = skip_blanks(text, start + 1);
  switch (text[start]) {
    case '(':
      return match->longer(TokenKind::open, behind);
    case ',':
      return match->longer(TokenKind::comma, behind);
    case ':':
      return match->longer(TokenKind::colon, behind);
    case '=':
      return match->longer(TokenKind::equal, behind);
    case ')':
      return match->longer(TokenKind::close, start + 1);
    case ']':
      return match->longer(TokenKind::bracket_close, start + 1);
    case '}':
      return match->longer(TokenKind::brace_close, start + 1);
    case '[':
      if (start == place) match->longer(TokenKind::bracket_open, behind);
      return;
    case '{':
      if (start == place) match->longer(TokenKind::brace_open, behind);
      return;
    default:
      return;
  }
}

void match_plain(std::string_view text, std::size_t place, Match* match) {
  bool is_real = false;
  const std::size_t number = match_number(text, place, &is_real);
  if (number > 0) match->longer(is_real ? TokenKind::real : TokenKind::integer, place + number);
  const std::size_t id = identifier(text, place);
  if (id > place) {
    const std::string_view word = text.substr(place, id - place);
    TokenKind kind = TokenKind::name;
    if (equals_ignoring_case(word, "true") || equals_ignoring_case(word, "false")) {
      kind = TokenKind::boolean;
    } else if (equals_ignoring_case(word, "null")) {
      kind = TokenKind::null;
    }
    match->longer(kind, id);
  }
  std::size_t escape = place;
  while (escape + 1 < text.size() && text[escape] == '\\' &&
         std::string_view("\\()[]{}:=, \t").find(text[escape + 1]) != std::string_view::npos) {
    escape += 2;
  }
  match->longer(TokenKind::escape, escape);
  if (text.substr(place, 2) == "${") {
    const std::size_t stop = text.find_first_of("{}", place + 2);
    if (stop != std::string_view::npos && text[stop] == '}' && stop > place + 2) {
      match->longer(TokenKind::interpolation, stop + 1);
    }
  }
  if (std::string_view("/-\\+.$%*@?|").find(text[place]) != std::string_view::npos) {
    match->longer(TokenKind::character, place + 1);
  }
  match->longer(TokenKind::blank, skip_blanks(text, place));
}

Token take(std::string_view text, std::size_t begin, std::size_t end, TokenKind kind) {
  return {kind, std::string(text.substr(begin, end - begin)), begin};
}

}  // namespace

std::vector<Token> lex_value(std::string_view text, std::size_t begin) {
  std::vector<Token> tokens;
  std::size_t place = begin;
  while (place < text.size()) {
    Match match;
    match.end = place;
    if (text[place] == '\'' || text[place] == '"') {
      match.longer(TokenKind::quoted, quoted_end(text, place));
    } else {
      match_separator(text, place, &match);
      match_plain(text, place, &match);
    }
    if (match.end == place) no_token(text, place, false);
    tokens.push_back(take(text, place, match.end, match.kind));
    place = match.end;
  }
  tokens.push_back({TokenKind::end, "", text.size()});
  return tokens;
}

std::vector<Token> lex_override(std::string_view text) {
  std::vector<Token> tokens;
  std::size_t place = 0;
  while (place < text.size()) {
    if (text[place] == '=') {
      const std::size_t end = skip_blanks(text, place + 1);
      tokens.push_back(take(text, place, end, TokenKind::equal));
      std::vector<Token> value = lex_value(text, end);
      tokens.insert(tokens.end(), value.begin(), value.end());
      return tokens;
    }
    Match match;
    match.end = place;
    match.longer(TokenKind::name, identifier(text, place));
    match.longer(TokenKind::special_name, special(text, place));
    match.longer(TokenKind::dotted, dotted(text, place));
    static constexpr std::pair<char, TokenKind> kSigns[] = {{'~', TokenKind::tilde},
                                                            {'+', TokenKind::plus},
                                                            {'@', TokenKind::at},
                                                            {':', TokenKind::colon},
                                                            {'/', TokenKind::slash}};
    for (const auto& [sign, kind] : kSigns) {
      if (text[place] == sign) match.longer(kind, place + 1);
    }
    if (match.end == place) no_token(text, place, true);
    tokens.push_back(take(text, place, match.end, match.kind));
    place = match.end;
  }
  tokens.push_back({TokenKind::end, "", text.size()});
  return tokens;
}

}  // namespace rr::recipe
