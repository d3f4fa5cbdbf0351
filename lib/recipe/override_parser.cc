// Reads the tokens of an override: recursive descent with a bounded depth.
#include <fmt/format.h>

#include "recipe/override.h"
#include "recipe/override_lexer.h"
#include "recipe/scalar.h"

namespace rr::recipe {
namespace {

constexpr int kMaxDepth = 100;

// \' in '...' (and \" in "...") is the quote; backslashes count in pairs only before a quote.
std::string unquote(std::string_view token) {
  const char quote = token[0];
  const std::string_view inner = token.substr(1, token.size() - 2);
  std::string text;
  for (std::size_t i = 0; i < inner.size();) {
    std::size_t end = i;
    while (end < inner.size() && inner[end] == '\\') ++end;
    const std::size_t run = end - i;
    const bool before_quote = end == inner.size() || inner[end] == quote;
    text.append(before_quote ? run / 2 : run, '\\');
    if (end < inner.size()) text += inner[end++];
    i = end;
  }
  return text;
}

std::string unescape(std::string_view token) {
  std::string text;
  for (std::size_t i = 1; i < token.size(); i += 2) text += token[i];
  return text;
}

bool is_primitive(TokenKind kind) {
  switch (kind) {
    case TokenKind::name:
    case TokenKind::null:
    case TokenKind::integer:
    case TokenKind::real:
    case TokenKind::boolean:
    case TokenKind::interpolation:
    case TokenKind::character:
    case TokenKind::colon:
    case TokenKind::escape:
    case TokenKind::blank:
      return true;
    default:
      return false;
  }
}

bool equal_keys(const Node& a, const Node& b) {
  const auto number = [](const Node& node, double* value) {
    if (node.kind == Kind::integer && !node.too_big) *value = static_cast<double>(node.integer);
    if (node.kind == Kind::real) *value = node.real;
    if (node.kind == Kind::boolean) *value = node.boolean ? 1 : 0;
    return node.kind == Kind::integer || node.kind == Kind::real || node.kind == Kind::boolean;
  };
  double x = 0, y = 0;
  if (number(a, &x) && number(b, &y))
    return !a.too_big && !b.too_big ? x == y : a.spelling == b.spelling;
  return a.kind == b.kind && a.text == b.text;
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Override parse() {
    Override result;
    if (accept(TokenKind::tilde)) {
      result.kind = OverrideKind::remove;
    } else if (accept(TokenKind::plus)) {
      result.kind = accept(TokenKind::plus) ? OverrideKind::force_add : OverrideKind::add;
    }
    key(&result);
    if (peek().kind == TokenKind::end && result.kind == OverrideKind::remove) return result;
    if (!accept(TokenKind::equal)) fail("there is no '=' behind the key");
    result.has_value = true;
    result.value = value();
    return result;
  }

  Node value() {
    if (peek().kind == TokenKind::end) return text_node("");
    Node first = element(0);
    if (peek().kind == TokenKind::comma) {
      while (accept(TokenKind::comma)) element(0);
      expect_end();
      throw OverrideError("a list of values without brackets is a sweep", 0, true);
    }
    expect_end();
    // Last, so that a malformed sweep is called malformed.
    if (sweep_) throw OverrideError("this is a sweep", 0, true);
    return first;
  }

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  Token take() { return tokens_[next_ < tokens_.size() - 1 ? next_++ : next_]; }
  bool accept(TokenKind kind) {
    if (peek().kind != kind) return false;
    take();
    return true;
  }
  [[noreturn]] void fail(const std::string& what) const { throw OverrideError(what, peek().place); }
  void expect(TokenKind kind, const char* what) {
    if (!accept(kind)) fail(fmt::format("{} is missing{}", what, before()));
  }
  void expect_end() {
    if (peek().kind != TokenKind::end) fail(fmt::format("'{}' is too much here", peek().text));
  }
  std::string before() const {
    return peek().kind == TokenKind::end ? " at the end" : fmt::format(" before '{}'", peek().text);
  }
  static bool is_id(TokenKind kind) {
    return kind == TokenKind::name || kind == TokenKind::special_name;
  }

  void key(Override* result) {
    if (is_id(peek().kind)) {
      result->key = take().text;
      while (accept(TokenKind::slash)) {
        if (!is_id(peek().kind)) fail("a name is missing behind '/'");
        result->key += '/' + take().text;
      }
    } else if (peek().kind == TokenKind::dotted) {
      result->key = take().text;
    }
    if (accept(TokenKind::at)) {
      result->has_package = true;
      if (is_id(peek().kind) || peek().kind == TokenKind::dotted) result->package = take().text;
    }
  }

  Node element(int depth) {
    if (depth > kMaxDepth) fail("brackets are nested too deeply");
    switch (peek().kind) {
      case TokenKind::bracket_open:
        return list(depth);
      case TokenKind::brace_open:
        return map(depth);
      case TokenKind::quoted: {
        Node node = text_node(unquote(take().text));
        node.quoted = true;
        return node;
      }
      case TokenKind::name:
        if (peek(1).kind == TokenKind::open) return function(depth);
        return primitive(true);
      default:
        if (!is_primitive(peek().kind)) fail(fmt::format("a value is missing{}", before()));
        return primitive(true);
    }
  }

  // Tokens up to the next separator. One is a typed scalar, several are text.
  Node primitive(bool is_value) {
    std::vector<Token> parts;
    while (is_primitive(peek().kind)) {
      if (!is_value &&
          (peek().kind == TokenKind::colon || peek().kind == TokenKind::interpolation)) {
        break;
      }
      parts.push_back(take());
    }
    if (parts.empty()) fail(fmt::format("a key is missing{}", before()));
    while (!parts.empty() && parts.back().kind == TokenKind::blank) parts.pop_back();
    if (!parts.empty() && parts.front().kind == TokenKind::blank) parts.erase(parts.begin());
    if (parts.size() == 1 && parts[0].kind != TokenKind::escape) return plain_scalar(parts[0].text);
    std::string text;
    for (const Token& part : parts) {
      text += part.kind == TokenKind::escape ? unescape(part.text) : part.text;
    }
    return text_node(text);
  }

  Node list(int depth) {
    Node node;
    node.kind = Kind::list;
    take();
    if (accept(TokenKind::bracket_close)) return node;
    do {
      node.items.push_back(element(depth + 1));
    } while (accept(TokenKind::comma));
    expect(TokenKind::bracket_close, "']'");
    return node;
  }

  Node map(int depth) {
    Node node;
    node.kind = Kind::map;
    take();
    if (accept(TokenKind::brace_close)) return node;
    do {
      Entry entry{primitive(false), {}};
      expect(TokenKind::colon, "':'");
      entry.value = element(depth + 1);
      bool known = false;
      for (Entry& other : node.entries) {
        if (!equal_keys(other.key, entry.key)) continue;
        other.value = entry.value;
        known = true;
      }
      if (!known) node.entries.push_back(std::move(entry));
    } while (accept(TokenKind::comma));
    expect(TokenKind::brace_close, "'}'");
    return node;
  }

  Node function(int depth) {
    const Token name = take();
    take();
    std::vector<Argument> arguments;
    if (peek().kind != TokenKind::close) {
      do {
        Argument argument;
        if (peek().kind == TokenKind::name && peek(1).kind == TokenKind::equal) {
          argument.name = take().text;
          take();
        }
        argument.value = element(depth + 1);
        arguments.push_back(std::move(argument));
      } while (accept(TokenKind::comma));
    }
    expect(TokenKind::close, "')'");
    for (const char* sweep : {"choice", "range", "interval", "glob", "tag", "shuffle"}) {
      if (name.text == sweep) sweep_ = true;
    }
    return sweep_ ? Node() : call_function(name.text, arguments, name.place);
  }

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  bool sweep_ = false;
};

}  // namespace

Override parse_override(std::string_view text) { return Parser(lex_override(text)).parse(); }

Node parse_override_value(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size() && (text[begin] == ' ' || text[begin] == '\t')) ++begin;
  return Parser(lex_value(text, begin)).value();
}

}  // namespace rr::recipe
