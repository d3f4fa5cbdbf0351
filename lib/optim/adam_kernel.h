// The AdamW update, written once over a small vector type; each adam_ISA.cc compiles it for its own
// instruction set.
//
// Everything with a body is in an anonymous namespace: the including files are built with different
// flags, and the linker must never take one file's copy of an inline function for another's.
#pragma once

#include <cstdint>
#include <cstring>

#include "optim/optim.h"

namespace rr::optim {

// Where round(p) goes beside p: nowhere, a float array, a bf16 array.
enum class WeightOut : std::uint8_t { none, f32, bf16 };

// p, m, v, g, weight_out as for adam_step.
struct AdamArrays {
  std::int64_t n;
  float *p, *m, *v;
  const float* g;
  void* weight_out;
  WeightOut kind;
};
void adam_generic(const AdamArguments& arguments, const AdamArrays& arrays);
void adam_avx2(const AdamArguments& arguments, const AdamArrays& arrays);
void adam_avx512(const AdamArguments& arguments, const AdamArrays& arrays);

namespace {

// A vector of one: the definition every wider one must equal, and the tail of each.
struct V1 {
  static constexpr std::int64_t kWidth = 1;
  float x;
  static V1 all(float value) { return {value}; }
  static V1 load(const float* from) { return {*from}; }
  void store(float* to) const { *to = x; }
  // Round to nearest, ties to even; NaN stays NaN. As bf16_from_float, which may not be used here
  // (see the top).
  void store_bf16(std::uint16_t* to) const {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
      *to = static_cast<std::uint16_t>((bits >> 16) | 0x40U);
    } else {
      *to = static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
    }
  }
};
inline V1 operator+(V1 a, V1 b) { return {a.x + b.x}; }
inline V1 operator-(V1 a, V1 b) { return {a.x - b.x}; }
inline V1 operator*(V1 a, V1 b) { return {a.x * b.x}; }
inline V1 operator/(V1 a, V1 b) { return {a.x / b.x}; }
inline V1 square_root(V1 a) { return {__builtin_sqrtf(a.x)}; }
// a * b + c, rounded once.
inline V1 fused(V1 a, V1 b, V1 c) { return {__builtin_fmaf(a.x, b.x, c.x)}; }

// The definition. Every operation is one IEEE rounding; the order is torch.optim.AdamW's.
template <class V>
struct AdamUpdate {
  V scale, rest1, beta2, rest2, bias2_sqrt, epsilon, decay, step;

  explicit AdamUpdate(const AdamArguments& a)
      : scale(V::all(a.gradient_scale)),
        rest1(V::all(a.one_minus_beta1)),
        beta2(V::all(a.beta2)),
        rest2(V::all(a.one_minus_beta2)),
        bias2_sqrt(V::all(a.bias2_sqrt)),
        epsilon(V::all(a.epsilon)),
        decay(V::all(a.decay_factor)),
        step(V::all(a.step_size)) {}

  V operator()(float* p_at, float* m_at, float* v_at, const float* g_at) const {
    const V g = V::load(g_at) * scale;
    const V m_old = V::load(m_at);
    const V m = fused(rest1, g - m_old, m_old);
    const V v = fused(rest2 * g, g, beta2 * V::load(v_at));
    const V denominator = square_root(v) / bias2_sqrt + epsilon;
    const V p = V::load(p_at) * decay - (step * m) / denominator;
    m.store(m_at);
    v.store(v_at);
    p.store(p_at);
    return p;
  }
};

template <class V, WeightOut kind>
inline std::int64_t adam_range(const AdamArguments& arguments, const AdamArrays& a,
                               std::int64_t i) {
  const AdamUpdate<V> update(arguments);
  for (; i + V::kWidth <= a.n; i += V::kWidth) {
    const V p = update(a.p + i, a.m + i, a.v + i, a.g + i);
    if constexpr (kind == WeightOut::f32) p.store(static_cast<float*>(a.weight_out) + i);
    if constexpr (kind == WeightOut::bf16) {
      p.store_bf16(static_cast<std::uint16_t*>(a.weight_out) + i);
    }
  }
  return i;
}

// Whole vectors first, then one by one.
template <class V>
inline void adam_all(const AdamArguments& arguments, const AdamArrays& a) {
  switch (a.kind) {
    case WeightOut::none:
      adam_range<V1, WeightOut::none>(arguments, a,
                                      adam_range<V, WeightOut::none>(arguments, a, 0));
      return;
    case WeightOut::f32:
      adam_range<V1, WeightOut::f32>(arguments, a, adam_range<V, WeightOut::f32>(arguments, a, 0));
      return;
    case WeightOut::bf16:
      adam_range<V1, WeightOut::bf16>(arguments, a,
                                      adam_range<V, WeightOut::bf16>(arguments, a, 0));
      return;
  }
}

}  // namespace
}  // namespace rr::optim
