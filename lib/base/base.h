// The small values every room shares: dtypes, memory spans, the user's problems and our own errors.
//
// base is the one folder with several door headers, one per small tool: base.h, files.h, log.h,
// mapped_file.h, random.h, threads.h, crc32c.h, text.h. Its names live directly in namespace rr.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace rr {

// ---- dtypes ---------------------------------------------------------------------------------

enum class DType : std::uint8_t { f32, bf16, f64, f16, i64, i32, i16, i8, u16, u8, boolean };

// Bytes of one element.
constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

// "f32", "bf16", ... as printed in plans and reports.
const char* name_of(DType type);

// The upper half of a float, rounded to nearest, ties to even; NaN stays NaN (quieted).
constexpr std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float float_from_bf16(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// ---- memory ---------------------------------------------------------------------------------

// Where a byte lives. `device` is the accelerator's memory (on the CPU build: memory that stands
// for it, counted the same way); `host` is pinned memory of the node.
enum class Pool : std::uint8_t { device, host };

const char* name_of(Pool pool);

// A borrowed range of bytes. Never owns; whoever hands it out says how long it lives.
struct Span {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  Pool pool = Pool::device;

  Span slice(std::int64_t begin, std::int64_t length) const { return {data + begin, length, pool}; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// ---- arithmetic -----------------------------------------------------------------------------

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

// ---- the user's mistakes ----------------------------------------------------------------------

enum class Severity : std::uint8_t {
  error,      // nothing can be done with this recipe
  plan_only,  // it can be planned; a run is refused
  warning,    // it runs; the setting does nothing, or not what one may think
};

// One thing that is wrong with the user's input. All problems of an input are collected before any
// is shown.
struct Problem {
  Severity severity = Severity::error;
  std::string key;     // dotted key, argument or file the problem is about; may be empty
  std::string where;   // "recipes/a.yaml:12", "override 3", "--lr"; empty for defaults
  std::string what;    // what is wrong, with the value; the reference's searchable text comes first
  std::string remedy;  // the value or the command that works
};

// "error: optimizer.lr (override 2): ... Use ..." without a line end.
std::string to_string(const Problem& problem);

// A mistake of the user: exit code 2. `what()` is every problem, one a line.
class UsageError : public std::runtime_error {
 public:
  explicit UsageError(std::vector<Problem> problems);
  explicit UsageError(Problem problem) : UsageError(std::vector<Problem>{std::move(problem)}) {}
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// ---- our own mistakes and the machine's ------------------------------------------------------

// A failure while running: exit code 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail_check(const char* expression, const char* file, int line,
                             const std::string& detail);

// An invariant of ours; never for user input. Throws Error with file, line and expression.
#define RR_CHECK(condition, detail)                                               \
  do {                                                                            \
    if (!(condition)) ::rr::fail_check(#condition, __FILE__, __LINE__, (detail)); \
  } while (false)

}  // namespace rr
