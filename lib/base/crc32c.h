// CRC-32C (Castagnoli), as iSCSI, TensorBoard and safetensors manifests use it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rr {

// The checksum of `bytes` bytes; pass the previous result as `seed` to continue a stream.
// crc32c("123456789", 9) == 0xe3069283.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0);

}  // namespace rr
