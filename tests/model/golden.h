// Arrays of rope_norm.safetensors as floats, doubles and bf16 bits, without torch.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace rr::model {

class Golden {
 public:
  Golden() : reader_(RR_TEST_DATA "/model/rope_norm.safetensors") {}

  const checkpoint::TensorInfo& info(const std::string& name) const { return reader_.at(name); }
  template <class T>
  std::vector<T> get(const std::string& name) const {
    const checkpoint::TensorInfo& i = reader_.at(name);
    std::vector<T> values(static_cast<std::size_t>(i.bytes) / sizeof(T));
    std::memcpy(values.data(), i.data, static_cast<std::size_t>(i.bytes));
    return values;
  }
  std::vector<float> floats(const std::string& name) const { return get<float>(name); }
  std::vector<double> doubles(const std::string& name) const { return get<double>(name); }

 private:
  checkpoint::SafetensorsReader reader_;
};

inline std::vector<std::uint16_t> rounded(const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float value : values) out.push_back(bf16_from_float(value));
  return out;
}

// Largest difference over the largest magnitude of `want`.
template <class A, class B>
double relative_error(const std::vector<A>& got, const std::vector<B>& want) {
  if (got.size() != want.size()) return INFINITY;
  double most = 0, difference = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    most = std::fmax(most, std::fabs(static_cast<double>(want[i])));
    const double d = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    difference = d <= difference ? difference : d;  // NaN wins
  }
  return difference / most;
}

// Largest distance in representable values.
inline int max_ulps(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
  if (a.size() != b.size()) return 1 << 30;
  const auto ordered = [](std::uint16_t bits) {
    return (bits & 0x8000) != 0 ? -static_cast<int>(bits & 0x7fff) : static_cast<int>(bits);
  };
  int most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(ordered(a[i]) - ordered(b[i])));
  }
  return most;
}

}  // namespace rr::model
