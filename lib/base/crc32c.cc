// CRC-32C with the processor's own instruction: the x86-64-v2 baseline of the build has it.
#include "base/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace rr {

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t crc = ~seed;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; --bytes, ++at) rest = _mm_crc32_u8(rest, *at);
  return ~rest;
}

}  // namespace rr
