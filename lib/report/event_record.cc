// The protobuf wire format by hand: a few fields of Event, Summary and Value.
#include "report/event_record.h"

#include <bit>
#include <string_view>

#include "base/crc32c.h"

namespace rr::report {
namespace {

template <class T>
void put_fixed(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void put_bytes(std::string& out, char key, std::string_view bytes) {
  out += key;
  put_varint(out, bytes.size());
  out += bytes;
}

// Field numbers and wire types: (number << 3) | type.
constexpr char kEventWallTime = 1 << 3 | 1;
constexpr char kEventStep = 2 << 3 | 0;
constexpr char kEventFileVersion = 3 << 3 | 2;
constexpr char kEventSummary = 5 << 3 | 2;
constexpr char kSummaryValue = 1 << 3 | 2;
constexpr char kValueTag = 1 << 3 | 2;
constexpr char kValueSimple = 2 << 3 | 5;

// Zeros are left out, as protobuf does for plain fields.
void put_wall_time(std::string& event, double wall_time) {
  if (wall_time == 0) return;
  event += kEventWallTime;
  put_fixed(event, std::bit_cast<std::uint64_t>(wall_time));
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return std::rotr(crc, 15) + 0xa282ead8U;
}

std::string record(const std::string& event) {
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(event.size()));
  put_fixed(out, masked_crc(out));
  out += event;
  put_fixed(out, masked_crc(event));
  return out;
}

}  // namespace

std::string version_record(double wall_time) {
  std::string event;
  put_wall_time(event, wall_time);
  put_bytes(event, kEventFileVersion, "brain.Event:2");
  return record(event);
}

std::string scalar_record(const std::string& tag, double value, std::int64_t step,
                          double wall_time) {
  std::string scalar;
  put_bytes(scalar, kValueTag, tag);
  scalar += kValueSimple;
  put_fixed(scalar, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  std::string summary;
  put_bytes(summary, kSummaryValue, scalar);
  std::string event;
  put_wall_time(event, wall_time);
  if (step != 0) {
    event += kEventStep;
    put_varint(event, static_cast<std::uint64_t>(step));
  }
  put_bytes(event, kEventSummary, summary);
  return record(event);
}

}  // namespace rr::report
