// The texts of --help and --help-all, made from the table of options.
#pragma once

#include <string>

namespace rr::app {

// About one screen: examples, then the common options. `width` in columns.
std::string help_text(int width);
// Every option on its own line, the forms of overrides, the environment, exit codes.
std::string help_all_text(int width);

}  // namespace rr::app
