// What the tests of this room share: golden tensors, values of every size, comparison by bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"

namespace rr::optim {

// The float tensors of a safetensors file that is known to be good.
class Golden {
 public:
  explicit Golden(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), 8);
    header_ = nlohmann::json::parse(bytes_.begin() + 8, bytes_.begin() + 8 + length);
    data_ = 8 + length;
  }
  std::vector<float> floats(const std::string& name) const {
    const std::uint64_t begin = header_.at(name)["data_offsets"][0];
    const std::uint64_t end = header_.at(name)["data_offsets"][1];
    std::vector<float> values((end - begin) / 4);
    std::memcpy(values.data(), bytes_.data() + data_ + begin, end - begin);
    return values;
  }

 private:
  std::vector<char> bytes_;
  nlohmann::json header_;
  std::uint64_t data_ = 0;
};

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
