// Colour, width and writing to standard output.
#include "app/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/base.h"

namespace rr::app {
namespace {

constexpr int kNarrowest = 40;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

bool wants_colour(Colour asked, bool launched) {
  if (asked != Colour::automatic) return asked == Colour::always;
  if (!variable("NO_COLOR").empty()) return false;
  const std::string force = variable("FORCE_COLOR");
  if (!force.empty() && force != "0") return true;
  return !launched && variable("TERM") != "dumb" && isatty(STDERR_FILENO) == 1;
}

int terminal_width(bool launched) {
  winsize size{};
  if (launched || isatty(STDOUT_FILENO) != 1) return 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
  return size.ws_col < kNarrowest ? kNarrowest : size.ws_col;
}

std::string wrap(const std::string& text, int used, int indent, int width) {
  std::string out;
  int column = used;
  bool line_is_empty = true;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find(' ', begin);
    if (end == std::string::npos) end = text.size();
    const int length = static_cast<int>(end - begin);
    if (!line_is_empty && column + 1 + length > width) {
      out += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
      column = indent;
      line_is_empty = true;
    }
    if (!line_is_empty) out += ' ';
    column += length + (line_is_empty ? 0 : 1);
    out += text.substr(begin, end - begin);
    line_is_empty = false;
    begin = end + 1;
  }
  return out;
}

std::string two_columns(const std::string& left, const std::string& right, int column, int width) {
  std::string text = left;
  if (std::ssize(left) + 2 > column) text += '\n';
  const std::size_t at = std::ssize(left) + 2 > column ? 0 : left.size();
  text += std::string(static_cast<std::size_t>(column) - at, ' ');
  return text + wrap(right, column, column, width) + '\n';
}

void print(const std::string& text) {
  bool ok = std::fputs(text.c_str(), stdout) >= 0;
  if (ok && (text.empty() || text.back() != '\n')) ok = std::fputc('\n', stdout) != EOF;
  if (!ok || std::fflush(stdout) != 0)
    throw Error(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

}  // namespace rr::app
