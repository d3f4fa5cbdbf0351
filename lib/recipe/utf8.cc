// Checks and cleans the bytes of a text file.
#include "recipe/utf8.h"

#include <fmt/format.h>

namespace rr::recipe {
namespace {

// Length of the UTF-8 character at `place`, 0 if it is broken (overlong, surrogate, cut short).
std::size_t character_length(std::string_view text, std::size_t place) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(place);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  unsigned code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(place + i) & 0xc0U) != 0x80U) return 0;
    code = (code << 6) | (byte(place + i) & 0x3fU);
  }
  static constexpr unsigned kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
  return length;
}

}  // namespace

std::optional<TextFault> clean_text(std::string_view raw, std::string* text) {
  const std::string_view bom = raw.substr(0, 2);
  if (bom == "\xff\xfe" || bom == "\xfe\xff") {
    return TextFault{1, "the file is UTF-16", "Save it as UTF-8."};
  }
  if (raw.substr(0, 3) == "\xef\xbb\xbf") raw.remove_prefix(3);
  text->reserve(raw.size());
  int line = 1;
  for (std::size_t i = 0; i < raw.size();) {
    const auto byte = static_cast<unsigned char>(raw[i]);
    if (byte == '\r' || byte == '\n') {
      i += byte == '\r' && i + 1 < raw.size() && raw[i + 1] == '\n' ? 2 : 1;
      *text += '\n';
      ++line;
      continue;
    }
    if ((byte < 0x20 && byte != '\t') || byte == 0x7f) {
      return TextFault{line,
                       fmt::format("a control character (byte 0x{:02x}) stands in the file", byte),
                       "Remove it."};
    }
    const std::size_t length = character_length(raw, i);
    if (length == 0) {
      return TextFault{line, fmt::format("the byte 0x{:02x} is not UTF-8", byte),
                       "Save the file as UTF-8."};
    }
    text->append(raw.substr(i, length));
    i += length;
  }
  return std::nullopt;
}

}  // namespace rr::recipe
