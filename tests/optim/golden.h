// What the tests of this room share: golden tensors, values of every size, comparison by bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint.h"

namespace rr::optim {

// The values of an f32 tensor.
inline std::vector<float> floats(const checkpoint::TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.bytes / 4));
  std::memcpy(values.data(), tensor.data, values.size() * 4);
  return values;
}

// Both signs, magnitudes from denormal to 1e15, some zeros.
inline std::vector<float> some_values(std::int64_t n, std::uint64_t seed) {
  const RandomStream random(seed, "some values");
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const float sign = random.bits(4 * i) & 1 ? -1.0F : 1.0F;
    const float u = random.uniform(4 * i + 1);
    const std::uint32_t kind = random.bits(4 * i + 2) % 16;
    if (kind == 0) {
      values[i] = sign * 0.0F;
    } else if (kind == 1) {
      values[i] = sign * u * 1e-38F * 1e-4F;
    } else if (kind == 2) {
      values[i] = sign * u * 1e15F;
    } else {
      values[i] = sign * u * std::pow(10.0F, static_cast<float>(kind % 8) - 6.0F);
    }
  }
  return values;
}

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, 4) == 0; }
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

}  // namespace rr::optim
