// What the terminal decides: colour and the width of text.
#pragma once

#include <string>

#include "app/cli.h"

namespace rr::app {

// Colour on standard error: as asked for; else by NO_COLOR and FORCE_COLOR; else on a terminal
// that is not dumb, and never under a launcher, where standard error always looks like one.
bool wants_colour(Colour asked, bool launched);

// Columns of standard output's terminal; 0 where it is a file or a pipe, or under a launcher.
int terminal_width(bool launched);

// `text` in lines of at most `width` columns, each after the first behind `indent` spaces; a word
// is never cut. `used` columns of the first line are taken.
std::string wrap(const std::string& text, int used, int indent, int width);

// The same two columns on every line: `left` padded to `column`, `right` wrapped beside it.
std::string two_columns(const std::string& left, const std::string& right, int column, int width);

// Writes to standard output, adds a missing line end and flushes. Throws Error when it cannot.
void print(const std::string& text);

}  // namespace rr::app
