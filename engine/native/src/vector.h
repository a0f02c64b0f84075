// Vectors of 16 floats: bf16 in and out, exp and tanh.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

namespace docmill {

using bf16 = uint16_t;

constexpr int LANES = 16;
constexpr float INF = std::numeric_limits<float>::infinity();

inline __m512 load_bf16(const bf16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

// Rounds to nearest even, and keeps NaN.
inline void store_bf16(bf16* p, __m512 value) {
  _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(value));
}

inline __mmask16 first_lanes(int count) {
  return count >= LANES ? __mmask16(0xFFFF) : __mmask16((1u << (count < 0 ? 0 : count)) - 1);
}

constexpr float LOG2E = 1.44269504088896341f;

// 2 to the x for x < 128; relative error below 3e-7. -inf gives 0, NaN stays NaN.
inline __m512 exp2_ps(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);  // the second of both if one is NaN
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.339086735e-3f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.666373693e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550357104e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402234894e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931471880e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

inline float exp2_one(float x) { return _mm512_cvtss_f32(exp2_ps(_mm512_set1_ps(x))); }

inline __m512 exp_ps(__m512 x) { return exp2_ps(_mm512_mul_ps(x, _mm512_set1_ps(LOG2E))); }

inline __m512 silu_ps(__m512 x) {
  // far below zero exp(-x) would overflow: there silu is 0
  const __m512 e = exp_ps(_mm512_min_ps(_mm512_set1_ps(88.0f), _mm512_sub_ps(_mm512_setzero_ps(), x)));
  return _mm512_div_ps(x, _mm512_add_ps(e, _mm512_set1_ps(1.0f)));
}

inline __m512 tanh_ps(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp_ps(_mm512_min_ps(_mm512_set1_ps(44.0f), _mm512_add_ps(x, x)));
  return _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
}

}  // namespace docmill
