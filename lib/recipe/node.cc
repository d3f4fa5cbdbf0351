// Values with their places: look-up, making, describing.
#include "recipe/node.h"

#include <fmt/format.h>

#include "base/text.h"
#include "recipe/scalar.h"

namespace rr::recipe {

const Node* Node::find(std::string_view key) const {
  if (kind != Kind::map) return nullptr;
  for (const Entry& entry : entries) {
    if (entry.name() == key) return &entry.value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(static_cast<const Node*>(this)->find(key));
}

Node null_node() {
  Node node;
  node.spelling = "null";
  return node;
}

Node boolean_node(bool value) {
  Node node;
  node.kind = Kind::boolean;
  node.boolean = value;
  node.spelling = value ? "true" : "false";
  return node;
}

Node integer_node(std::int64_t value) {
  Node node;
  node.kind = Kind::integer;
  node.integer = value;
  node.spelling = fmt::format("{}", value);
  return node;
}

Node real_node(double value) {
  Node node;
  node.kind = Kind::real;
  node.real = value;
  node.spelling = real_text(value);
  return node;
}

Node text_node(std::string_view value) {
  Node node;
  node.kind = Kind::text;
  node.text = value;
  node.spelling = value;
  return node;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "a truth value";
    case Kind::integer:
      return "a whole number";
    case Kind::real:
      return "a number";
    case Kind::text:
      return "text";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
  }
  return "?";
}

namespace {

void append_description(const Node& node, std::size_t limit, std::string& out) {
  if (out.size() > limit) return;
  switch (node.kind) {
    case Kind::text:
      out += node.quoted ? '"' + node.text + '"' : node.text.empty() ? "\"\"" : node.text;
      return;
    case Kind::list: {
      out += '[';
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        if (i > 0) out += ',';
        append_description(node.items[i], limit, out);
      }
      out += ']';
      return;
    }
    case Kind::map: {
      out += '{';
      for (std::size_t i = 0; i < node.entries.size(); ++i) {
        if (i > 0) out += ',';
        out += node.entries[i].name() + ':';
        append_description(node.entries[i].value, limit, out);
      }
      out += '}';
      return;
    }
    case Kind::null:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      out += node.spelling;
      return;
  }
}

}  // namespace

std::string describe(const Node& node, std::size_t limit) {
  std::string text;
  append_description(node, limit, text);
  if (text.size() > limit) {
    std::size_t end = limit;
    // Do not cut a UTF-8 character in two.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
    text = text.substr(0, end) + "..";
  }
  return text;
}

void set_origin(Node& node, const Origin& origin) {
  node.origin = origin;
  for (Node& item : node.items) set_origin(item, origin);
  for (Entry& entry : node.entries) set_origin(entry.value, origin);
}

std::string join_key(std::string_view parent, std::string_view name) {
  return parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
}

std::vector<std::string> split_key(std::string_view key) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = key.find('.', begin);
    if (dot == std::string_view::npos) break;
    parts.emplace_back(key.substr(begin, dot - begin));
    begin = dot + 1;
  }
  parts.emplace_back(key.substr(begin));
  return parts;
}

}  // namespace rr::recipe
