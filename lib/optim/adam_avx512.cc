// AdamW for AVX-512; this file alone is compiled for it. The bf16 instructions are not used: they
// flush denormals.
#include <immintrin.h>

#include "optim/adam_kernel.h"

namespace rr::optim {
namespace {

// GCC 12 warns of uninitialised values in the unmasked forms of some intrinsics.
constexpr __mmask16 kAll = 0xffff;

struct V16 {
  static constexpr std::int64_t kWidth = 16;
  __m512 x;
  static V16 all(float value) { return {_mm512_set1_ps(value)}; }
  static V16 load(const float* from) { return {_mm512_loadu_ps(from)}; }
  void store(float* to) const { _mm512_storeu_ps(to, x); }
  void store_bf16(std::uint16_t* to) const {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_maskz_srli_epi32(kAll, bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_maskz_srli_epi32(
        kAll, _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i words = _mm512_mask_blend_epi32(is_nan, rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(kAll, words));
  }
};
inline V16 operator+(V16 a, V16 b) { return {_mm512_add_ps(a.x, b.x)}; }
inline V16 operator-(V16 a, V16 b) { return {_mm512_sub_ps(a.x, b.x)}; }
inline V16 operator*(V16 a, V16 b) { return {_mm512_mul_ps(a.x, b.x)}; }
inline V16 operator/(V16 a, V16 b) { return {_mm512_div_ps(a.x, b.x)}; }
inline V16 square_root(V16 a) { return {_mm512_maskz_sqrt_ps(kAll, a.x)}; }
inline V16 fused(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }

}  // namespace

void adam_avx512(const AdamArguments& arguments, const AdamArrays& arrays) {
  adam_all<V16>(arguments, arrays);
}

}  // namespace rr::optim
