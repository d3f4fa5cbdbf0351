// A value as one line of YAML that reads back to the same value.
#include <fmt/format.h>

#include <algorithm>

#include "recipe/fields.h"
#include "recipe/yaml.h"

namespace rr::recipe {
namespace {

bool is_plain_word(const std::string& text) {
  if (text.empty()) return false;
  const auto is_safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/' || c == '+';
  };
  return std::all_of(text.begin(), text.end(), is_safe) && text[0] != '-';
}

// Would the bare word be read as text, by every dialect? Leading digits and the short truth words
// are quoted although we would read them right.
bool reads_as_text(const std::string& text) {
  if (!is_plain_word(text) || (text[0] >= '0' && text[0] <= '9') || text[0] == '.' ||
      text[0] == '+') {
    return text.size() > 1 && is_plain_word(text) && text.rfind("./", 0) == 0;
  }
  for (const char* word : {"y", "n", "Y", "N", "None", "inf", "nan", "NaN", "Inf"}) {
    if (text == word) return false;
  }
  std::vector<Problem> problems;
  const Node root = parse_yaml("k: " + text, "", OriginKind::recipe, &problems);
  const Node* value = root.find("k");
  return problems.empty() && value != nullptr && value->kind == Kind::text && value->text == text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number(double value) {
  if (value != value) return ".nan";
  if (value > 1.7976931348623157e308) return ".inf";
  if (value < -1.7976931348623157e308) return "-.inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string yaml_line(const Node& node) {
  switch (node.kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return node.boolean ? "true" : "false";
    case Kind::integer:
      return fmt::format("{}", node.integer);
    case Kind::real:
      return number(node.real);
    case Kind::text:
      return reads_as_text(node.text) ? node.text : quoted(node.text);
    case Kind::list:
    case Kind::map:
      break;
  }
  std::string out = node.kind == Kind::list ? "[" : "{";
  const char* comma = "";
  for (const Node& item : node.items) {
    out += comma + yaml_line(item);
    comma = ", ";
  }
  for (const Entry& entry : node.entries) {
    const std::string key = entry.key.kind == Kind::text ? yaml_line(entry.key) : entry.name();
    out += fmt::format("{}{}: {}", comma, key, yaml_line(entry.value));
    comma = ", ";
  }
  return out + (node.kind == Kind::list ? "]" : "}");
}

}  // namespace rr::recipe
