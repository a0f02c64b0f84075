// What is done to each token by itself: normalising, turning queries and keys, storing keys and values.
#pragma once

#include <cmath>

#include "attention.h"

namespace docmill {

struct Norm {
  const float* weight;  // null: none
  float epsilon;
};

// out = x / rms(x), rounded to bf16 before it is multiplied by the weight, as Llama does, for `size` values; in place
// if out is x.
inline void normalise(const bf16* x, bf16* out, int64_t size, const Norm& norm) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < size; i += LANES) {
    const __m512 value = load_bf16(x + i);
    squares = _mm512_fmadd_ps(value, value, squares);
  }
  const float mean = _mm512_reduce_add_ps(squares) / float(size);
  const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(mean + norm.epsilon));
  for (int64_t i = 0; i < size; i += LANES) {
    bf16 rounded[LANES];
    store_bf16(rounded, _mm512_mul_ps(load_bf16(x + i), factor));
    store_bf16(out + i, _mm512_mul_ps(load_bf16(rounded), _mm512_loadu_ps(norm.weight + i)));
  }
}

inline void norm_rows(const bf16* x, bf16* out, int64_t T, int64_t size, const Norm& norm) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
  for (int64_t t = 0; t < T; ++t) normalise(x + t * size, out + t * size, size, norm);
}

struct Store {
  bf16* qkv;  // [T, H + 2 K, D]; queries are normalised and turned in place
  const bf16 *cos, *sin;  // [T, R]; null: nothing is turned
  const int64_t* where;   // [T], token slots
  bf16 *keys, *values;
  Norm query_norm, key_norm;
  int64_t T, H, K, D, R;
};

// Turns the first R of a head's values: value i with value i + R / 2.
inline void turn(bf16* x, const bf16* cos, const bf16* sin, int64_t R) {
  const int64_t half = R / 2;
  for (int64_t i = 0; i < half; i += LANES) {
    const __m512 a = load_bf16(x + i), b = load_bf16(x + half + i);
    const __m512 turned_a = _mm512_fnmadd_ps(b, load_bf16(sin + i), _mm512_mul_ps(a, load_bf16(cos + i)));
    const __m512 turned_b = _mm512_fmadd_ps(a, load_bf16(sin + half + i), _mm512_mul_ps(b, load_bf16(cos + half + i)));
    store_bf16(x + i, turned_a);
    store_bf16(x + half + i, turned_b);
  }
}

inline void store_token(const Store& s, int64_t t) {
  bf16* token = s.qkv + t * (s.H + 2 * s.K) * s.D;
  for (int64_t head = 0; head < s.H + s.K; ++head) {
    const Norm& norm = head < s.H ? s.query_norm : s.key_norm;
    if (norm.weight) normalise(token + head * s.D, token + head * s.D, s.D, norm);
    if (s.cos) turn(token + head * s.D, s.cos + t * s.R, s.sin + t * s.R, s.R);
  }
  const int64_t block = s.where[t] / BLOCK, slot = s.where[t] % BLOCK;
  for (int64_t head = 0; head < s.K; ++head) {
    const bf16 *key = token + (s.H + head) * s.D, *value = key + s.K * s.D;
    bf16* keys = s.keys + (block * s.K + head) * BLOCK * s.D + 2 * slot;
    bf16* values = s.values + (block * s.K + head) * BLOCK * s.D + slot / 2 * PANEL_STRIDE + slot % 2;
    for (int64_t pair = 0; pair < s.D / 2; ++pair) __builtin_memcpy(keys + pair * PANEL_STRIDE, key + 2 * pair, 4);
    for (int64_t d = 0; d < s.D; ++d) values[d / PANEL * PANEL * BLOCK + d % PANEL * 2] = value[d];
  }
}

inline void store(const Store& s) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
  for (int64_t t = 0; t < s.T; ++t) store_token(s, t);
}

}  // namespace docmill
