// Products of row-major bf16 rows with weights in panels: x [M, K] times w [N, K] transposed.
//
// A panel holds 32 columns: for each pair of k, 32 columns of 2 values, as vdpbf16ps reads them.
// Every output is one sum over k in order, in fp32, whatever M is: a row's result does not depend on
// the rows beside it, to the last bit.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <utility>

#include "vector.h"

namespace docmill {

// As many as torch uses, from whichever thread it is called.
inline int num_threads() { return int(torch::stable::get_num_threads()); }

constexpr int PANEL = 32;
constexpr int PANEL_STRIDE = 2 * PANEL;  // values of one pair of k

// Rows computed at once: 12 x 2 accumulators, and 8 registers left to feed them.
constexpr int MAX_ROWS = 12;

// acc[m][j] += sum over `pairs` of a[m] and the two column vectors of b.
template <int ROWS>
inline __attribute__((always_inline)) void multiply(
    const bf16* a, int64_t a_stride, const bf16* b, int64_t pairs, __m512 (&acc)[ROWS][2]) {
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
    const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + PANEL);
    b += PANEL_STRIDE;
#pragma GCC unroll 12
    for (int m = 0; m < ROWS; ++m) {
      int32_t both;
      __builtin_memcpy(&both, a + m * a_stride + 2 * pair, 4);
      const __m512bh value = (__m512bh)_mm512_set1_epi32(both);
      acc[m][0] = _mm512_dpbf16_ps(acc[m][0], value, b0);
      acc[m][1] = _mm512_dpbf16_ps(acc[m][1], value, b1);
    }
  }
}

// Calls `body` for groups of rows, whose number the compiler knows: as many as are computed at once, then the rest.
template <typename Body>
inline void by_rows(int64_t begin, int64_t end, Body body) {
  for (; begin + MAX_ROWS <= end; begin += MAX_ROWS) body.template operator()<MAX_ROWS>(begin);
  [&]<int... N>(std::integer_sequence<int, N...>) {
    (void)((end - begin == N + 1 && (body.template operator()<N + 1>(begin), true)) || ...);
  }(std::make_integer_sequence<int, MAX_ROWS - 1>());
}

enum class Epilogue { Plain, Exact, Add, SiluTimes };

struct Linear {
  const bf16* x;         // [M, K]
  const bf16* packed;    // [ceil(N / 32), K / 2, 32, 2]
  const float* bias;     // [N] or null
  const bf16* residual;  // [M, N], for Epilogue::Add
  bf16* out;             // [M, N]; for SiluTimes [M, N / 2]; for Exact null
  float* exact;          // [M, N], for Exact: not rounded
  int64_t M, N, K;
};

template <int ROWS, Epilogue E>
void linear_tile(const Linear& l, int64_t row, int64_t panel) {
  __m512 acc[ROWS][2];
  const int64_t column = panel * PANEL;
  for (int j = 0; j < 2; ++j) {
    const __mmask16 lanes = first_lanes(int(l.N - column) - j * LANES);
    const __m512 bias = l.bias ? _mm512_maskz_loadu_ps(lanes, l.bias + column + j * LANES) : _mm512_setzero_ps();
    for (int m = 0; m < ROWS; ++m) acc[m][j] = bias;
  }
  multiply<ROWS>(l.x + row * l.K, l.K, l.packed + panel * l.K * PANEL, l.K / 2, acc);
  for (int m = 0; m < ROWS; ++m) {
    if constexpr (E == Epilogue::SiluTimes) {
      // a panel is 16 columns of the gate and the same 16 of what it gates
      store_bf16(l.out + (row + m) * (l.N / 2) + column / 2, _mm512_mul_ps(silu_ps(acc[m][0]), acc[m][1]));
      continue;
    }
    for (int j = 0; j < 2; ++j) {
      const int64_t at = (row + m) * l.N + column + j * LANES;
      const __mmask16 lanes = first_lanes(int(l.N - column) - j * LANES);
      __m512 value = acc[m][j];
      if constexpr (E == Epilogue::Exact) {
        _mm512_mask_storeu_ps(l.exact + at, lanes, value);
        continue;
      }
      if constexpr (E == Epilogue::Add) {
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, l.residual + at));
        value = _mm512_add_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
      }
      _mm256_mask_storeu_epi16(l.out + at, lanes, (__m256i)_mm512_cvtneps_pbh(value));
    }
  }
}

// Rows of one block stay in the second-level cache while the panels pass by. Blocks are of equal size, and there are
// enough of them for all threads to end at about the same time.
constexpr int64_t BLOCK_ROWS = 16 * MAX_ROWS;
constexpr int64_t TASKS_PER_THREAD = 8;

template <Epilogue E>
void linear(const Linear& l) {
  const int64_t panels = (l.N + PANEL - 1) / PANEL, tiles = (l.M + MAX_ROWS - 1) / MAX_ROWS;
  const int64_t for_cache = (l.M + BLOCK_ROWS - 1) / BLOCK_ROWS;
  const int64_t for_threads = (TASKS_PER_THREAD * num_threads() + panels - 1) / std::max<int64_t>(1, panels);
  const int64_t blocks = std::min(tiles, std::max(for_cache, for_threads));
#pragma omp parallel for schedule(static) num_threads(num_threads())
  for (int64_t task = 0; task < blocks * panels; ++task) {
    const int64_t block = task / panels;
    const auto row = [&](int64_t border) { return std::min(l.M, tiles * border / blocks * MAX_ROWS); };
    by_rows(row(block), row(block + 1), [&]<int ROWS>(int64_t first) { linear_tile<ROWS, E>(l, first, task % panels); });
  }
}

inline void pack(const bf16* w, bf16* packed, int64_t N, int64_t K) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
  for (int64_t panel = 0; panel < (N + PANEL - 1) / PANEL; ++panel)
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < PANEL; ++n) {
        const int64_t column = panel * PANEL + n;
        packed[panel * K * PANEL + k / 2 * PANEL_STRIDE + 2 * n + k % 2] = column < N ? w[column * K + k] : 0;
      }
}

}  // namespace docmill
