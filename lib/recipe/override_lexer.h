// Tokens of an override. The longest token wins; blanks around separators belong to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rr::recipe {

enum class TokenKind : std::uint8_t {
  // of keys
  tilde,
  plus,
  at,
  slash,
  name,
  special_name,
  dotted,
  // of values
  quoted,
  open,
  close,
  bracket_open,
  bracket_close,
  brace_open,
  brace_close,
  comma,
  integer,
  real,
  boolean,
  null,
  character,
  escape,
  blank,
  interpolation,
  // of both
  equal,
  colon,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  std::size_t place = 0;
};

// Tokens of the key up to and with the first "=", then those of the value; the last is `end`.
// Throws OverrideError where no token starts.
std::vector<Token> lex_override(std::string_view text);
std::vector<Token> lex_value(std::string_view text, std::size_t begin);

}  // namespace rr::recipe
