// AdamW for AVX2 with FMA; this file alone is compiled for them.
#include <immintrin.h>

#include "optim/adam_kernel.h"

namespace rr::optim {
namespace {

struct V8 {
  static constexpr std::int64_t kWidth = 8;
  __m256 x;
  static V8 all(float value) { return {_mm256_set1_ps(value)}; }
  static V8 load(const float* from) { return {_mm256_loadu_ps(from)}; }
  void store(float* to) const { _mm256_storeu_ps(to, x); }
  void store_bf16(std::uint16_t* to) const {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
  }
};
inline V8 operator+(V8 a, V8 b) { return {_mm256_add_ps(a.x, b.x)}; }
inline V8 operator-(V8 a, V8 b) { return {_mm256_sub_ps(a.x, b.x)}; }
inline V8 operator*(V8 a, V8 b) { return {_mm256_mul_ps(a.x, b.x)}; }
inline V8 operator/(V8 a, V8 b) { return {_mm256_div_ps(a.x, b.x)}; }
inline V8 square_root(V8 a) { return {_mm256_sqrt_ps(a.x)}; }
inline V8 fused(V8 a, V8 b, V8 c) { return {_mm256_fmadd_ps(a.x, b.x, c.x)}; }

}  // namespace

void adam_avx2(const AdamArguments& arguments, const AdamArrays& arrays) {
  adam_all<V8>(arguments, arrays);
}

}  // namespace rr::optim
