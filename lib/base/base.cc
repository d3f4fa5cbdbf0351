// Names, problem texts and checks.
#include "base/base.h"

#include <fmt/format.h>

namespace rr {

const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::i16:
      return "i16";
    case DType::i8:
      return "i8";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
    case DType::boolean:
      return "bool";
  }
  return "?";
}

const char* name_of(Pool pool) { return pool == Pool::device ? "device" : "host"; }

std::string to_string(const Problem& problem) {
  const bool warning = problem.severity == Severity::warning;
  std::string text = warning ? "warning: " : "error: ";
  text += problem.key;
  if (!problem.where.empty()) text += fmt::format(" ({})", problem.where);
  if (!problem.key.empty() || !problem.where.empty()) text += ": ";
  text += problem.what;
  if (!problem.remedy.empty()) text += " " + problem.remedy;
  return text;
}

namespace {

std::string all_lines(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += to_string(problem);
  }
  return text;
}

}  // namespace

UsageError::UsageError(std::vector<Problem> problems)
    : std::runtime_error(all_lines(problems)), problems_(std::move(problems)) {}

void fail_check(const char* expression, const char* file, int line, const std::string& detail) {
  throw Error(fmt::format("{}:{}: check failed: {}: {}", file, line, expression, detail));
}

}  // namespace rr
