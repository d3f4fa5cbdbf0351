// Makes bytes of a file safe to parse: UTF-8 without a byte-order mark, lines ended by \n.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rr::recipe {

struct TextFault {
  int line = 1;
  std::string what;
  std::string remedy;
};

// Copies `raw` to `text` or says what is wrong with it: UTF-16, broken UTF-8, control characters.
std::optional<TextFault> clean_text(std::string_view raw, std::string* text);

}  // namespace rr::recipe
