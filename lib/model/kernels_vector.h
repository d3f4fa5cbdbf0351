// Sixteen floats as one value, in the compiler's vector extension: the same operations on every
// instruction set, split by the compiler where registers are narrower. Included by kernels_body.h
// only, so that everything here is compiled for that file's target.

#pragma once

#include "model/kernels_table.h"

#pragma GCC diagnostic ignored "-Wpsabi"

namespace rr::model::RR_ISA {
namespace {

using Index = std::int64_t;
inline constexpr Index kLanes = 16;
using Vector = float __attribute__((vector_size(64)));
using Integers = std::int32_t __attribute__((vector_size(64)));
using Bits = std::uint32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}

struct Bf16 {
  std::uint16_t bits;
};

inline void load_one(const float* p, float& value) { value = *p; }
inline void load_one(const Bf16* p, float& value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(p->bits) << 16;
  __builtin_memcpy(&value, &bits, sizeof value);
}
inline void store_one(float* p, float value) { *p = value; }
inline void store_one(Bf16* p, float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  p->bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U
                                           : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline Vector load_all(const float* p) {
  Vector v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline Vector load_all(const Bf16* p) {
  Halves h;
  __builtin_memcpy(&h, p, sizeof h);
  return (Vector)(__builtin_convertvector(h, Bits) << 16);
}
inline void store_all(float* p, const Vector& v) { __builtin_memcpy(p, &v, sizeof v); }
inline void store_all(Bf16* p, const Vector& v) {
  const Bits bits = (Bits)v;
  const Bits rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Bits quiet = (bits >> 16) | 0x40U;
  const Bits result = (bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded;
  const Halves h = __builtin_convertvector(result, Halves);
  __builtin_memcpy(p, &h, sizeof h);
}

// The first n lanes; the others are `other`.
template <class T>
inline Vector load_or(const T* p, Index n, float other) {
  Vector v = Vector{} + other;
  for (Index i = 0; i < n; ++i) {
    float one;
    load_one(p + i, one);
    v[i] = one;
  }
  return v;
}
template <class T>
inline Vector load(const T* p, Index n) {
  return n == kLanes ? load_all(p) : load_or(p, n, 0.0F);
}
template <class T>
inline void store(T* p, Index n, const Vector& v) {
  if (n == kLanes) return store_all(p, v);
  for (Index i = 0; i < n; ++i) store_one(p + i, v[i]);
}

// `value` in the first n lanes, zero in the others.
inline Vector only(Index n, float value) {
  Vector v{};
  if (n == kLanes) return v + value;
  for (Index i = 0; i < n; ++i) v[i] = value;
  return v;
}
// v in the first n lanes, zero in the others.
inline Vector keep(Index n, const Vector& value) {
  Vector v = value;
  for (Index i = n; i < kLanes; ++i) v[i] = 0;
  return v;
}

// work(i, n) for i = 0, 16, ...; n = 16 but for the last.
template <class Work>
inline __attribute__((always_inline)) void for_vector(Index count, const Work& work) {
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes) work(i, kLanes);
  if (i < count) work(i, count - i);
}

inline float sum(const Vector& v) {
  float lane[kLanes];
  __builtin_memcpy(lane, &v, sizeof v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

// e^x within 2 ulp on [-87, 88], clamped outside; NaN stays NaN. Range reduction and polynomial of
// Cephes' expf.
inline Vector exponential(const Vector& power) {
  Vector x = power < -87.0F ? Vector{} - 87.0F : power;
  x = x > 88.0F ? Vector{} + 88.0F : x;
  const float magic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const Vector shifted = x * 1.44269504F + magic;
  const Vector whole = shifted - magic;
  const Vector r = x - whole * 0.693359375F + whole * 2.12194440e-4F;
  Vector p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const Integers exponent = (Integers)shifted - 0x4B400000 + 127;
  return p * (Vector)(exponent << 23);
}
inline float exponential(float x) { return exponential(Vector{} + x)[0]; }

// erf within 2e-7 (Abramowitz and Stegun 7.1.26).
inline Vector error_function(const Vector& x) {
  const Vector a = x < 0.0F ? -x : x;
  const Vector t = 1.0F / (1.0F + 0.3275911F * a);
  Vector p = t * 1.061405429F - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const Vector y = 1.0F - p * t * exponential(-a * a);
  return x < 0.0F ? -y : y;
}

}  // namespace
}  // namespace rr::model::RR_ISA
