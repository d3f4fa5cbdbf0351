// safetensors files put together byte by byte, for tests of files that no writer would write.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace rr::test {

inline std::string raw_length(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

inline std::string raw_file(const std::string& header, std::size_t data_bytes) {
  return raw_length(header.size()) + header + std::string(data_bytes, '\1');
}

}  // namespace rr::test
