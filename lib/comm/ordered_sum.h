// Private: element-wise reductions in the order of the group's ranks, so that the bits do not
// depend on how the values travelled.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace rr::comm {

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return a + b;
  }
};

// NaN wins, whatever the order: a rank must not hide another's.
struct Max {
  template <class T>
  static T apply(T a, T b) {
    if (std::isnan(a)) return a;
    return b > a || std::isnan(b) ? b : a;
  }
};

// out[k] = parts[0][k] op parts[1][k] op ... from left to right. `out` may be one of the parts.
template <class Op, class T>
void reduce_in_order(std::span<const T* const> parts, T* out, std::size_t count) {
  constexpr std::size_t kBlock = 1024;  // stays in the first cache
  T sum[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = count - begin < kBlock ? count - begin : kBlock;
    for (std::size_t k = 0; k < n; ++k) sum[k] = parts[0][begin + k];
    for (std::size_t part = 1; part < parts.size(); ++part) {
      const T* in = parts[part] + begin;
      for (std::size_t k = 0; k < n; ++k) sum[k] = Op::apply(sum[k], in[k]);
    }
    for (std::size_t k = 0; k < n; ++k) out[begin + k] = sum[k];
  }
}

}  // namespace rr::comm
