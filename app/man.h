// The man page, in roff, made from the table of options.
#pragma once

#include <string>

namespace rr::app {

std::string man_page();

}  // namespace rr::app
