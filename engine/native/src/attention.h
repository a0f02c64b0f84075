// Attention of runs over keys and values in blocks, and what puts them there.
//
// A block holds 32 tokens of each head: keys as [D / 2, 32, 2], values as [D / 32, 16, 32, 2], the order in
// which `multiply` reads its second operand, so that nothing is rearranged while attending. Keys are
// taken 128 at a time from the row's first token on, whatever run, tile or pass a query is in: its
// result does not depend on what is computed beside it, to the last bit.
#pragma once

#include <vector>

#include "gemm.h"

namespace docmill {

constexpr int BLOCK = 32;
constexpr int GROUP_KEYS = 4 * BLOCK;
constexpr int64_t LINE = 32;  // values of a line of the cache
constexpr int TILE_ROWS = 2 * MAX_ROWS;  // or the heads of one token that share keys, if those are more

struct Run {  // as engine.attention.Run has it
  int32_t start, count, base, length;
};

struct Attend {
  const bf16* query;  // [T, H, D], token stride `query_stride`
  const bf16 *keys, *values;
  const Run* runs;
  int64_t num_runs;
  const float* sinks;  // [H] or null
  bf16* out;           // [T, H, D]
  int64_t H, K, D, query_stride, window;  // window 0: none
  float scale, softcap;                   // softcap 0: none
};

struct Tile {  // `count` tokens of a run from its token `first`, for `heads` heads of keys from `head` on
  int32_t run, first, count, head, heads;
};

struct Scratch {
  std::vector<bf16> query, weights;
  std::vector<float> scores, sums, highest, total, decay;
  std::vector<bf16> last_pair;

  Scratch(int64_t rows, int64_t D)
      : query(rows * D), weights(rows * GROUP_KEYS), scores(rows * GROUP_KEYS), sums(rows * D), highest(rows), total(rows), decay(rows), last_pair(2 * D) {}
};

// Scores of rows against one block of their head's keys, as powers of two.
inline void score_block(const Attend& a, const bf16* keys, int64_t begin, int64_t end, Scratch& s, int64_t column) {
  const float factor = a.softcap > 0.0f ? a.scale / a.softcap : a.scale * LOG2E;
  by_rows(begin, end, [&]<int ROWS>(int64_t row) {
    __m512 acc[ROWS][2];
    for (int m = 0; m < ROWS; ++m) acc[m][0] = acc[m][1] = _mm512_setzero_ps();
    multiply<ROWS>(s.query.data() + row * a.D, a.D, keys, a.D / 2, acc);
    for (int m = 0; m < ROWS; ++m)
      for (int j = 0; j < 2; ++j) {
        __m512 score = _mm512_mul_ps(acc[m][j], _mm512_set1_ps(factor));
        if (a.softcap > 0.0f) score = _mm512_mul_ps(tanh_ps(score), _mm512_set1_ps(a.softcap * LOG2E));
        _mm512_storeu_ps(s.scores.data() + (row + m) * GROUP_KEYS + column + j * LANES, score);
      }
  });
}

// Turns a row's scores into weights against the highest score so far; keys outside [low, high) have none.
template <bool ALL>
inline void weigh(Scratch& s, int64_t row, int columns = GROUP_KEYS, int low = 0, int high = GROUP_KEYS) {
  float* scores = s.scores.data() + row * GROUP_KEYS;
  __m512 top = _mm512_set1_ps(-INF);
  for (int c = 0; c < (ALL ? GROUP_KEYS : columns); c += LANES) {
    __m512 score = _mm512_loadu_ps(scores + c);
    if constexpr (!ALL) {
      const __mmask16 seen = first_lanes(high - c) & __mmask16(~first_lanes(low - c));
      score = _mm512_mask_mov_ps(_mm512_set1_ps(-INF), seen, score);
      _mm512_storeu_ps(scores + c, score);
    }
    top = _mm512_max_ps(top, score);  // may lose a NaN, which the sum of the weights keeps
  }
  const float highest = std::max(s.highest[row], _mm512_reduce_max_ps(top));
  const bool nothing = highest == -INF;
  const __m512 base = _mm512_set1_ps(nothing ? 0.0f : highest);
  __m512 sum = _mm512_setzero_ps();
  bf16* weights = s.weights.data() + row * GROUP_KEYS;
  for (int c = 0; c < (ALL ? GROUP_KEYS : columns); c += LANES) {
    const __m512 weight = exp2_ps(_mm512_sub_ps(_mm512_loadu_ps(scores + c), base));
    sum = _mm512_add_ps(sum, weight);
    store_bf16(weights + c, weight);
  }
  s.decay[row] = nothing ? 1.0f : exp2_one(s.highest[row] - highest);
  s.total[row] = s.total[row] * s.decay[row] + _mm512_reduce_add_ps(sum);
  s.highest[row] = highest;
}

// Adds the weighted values of `num_keys` keys from a block on; `values` is the head's part of it.
inline void add_values(
    const Attend& a, const bf16* values, int64_t block_stride, int64_t begin, int64_t end, int num_keys, Scratch& s) {
  if (num_keys % 2) {  // the last pair's other half is not this row's
    const bf16* pair = values + num_keys / BLOCK * block_stride + num_keys % BLOCK / 2 * PANEL_STRIDE;
    for (int64_t d = 0; d < a.D; ++d) s.last_pair[2 * d] = pair[d / PANEL * PANEL * BLOCK + d % PANEL * 2];
  }
  by_rows(begin, end, [&]<int ROWS>(int64_t row) {
    for (int64_t column = 0; column < a.D; column += PANEL) {
      __m512 acc[ROWS][2];
      float* sums = s.sums.data() + row * a.D + column;
      for (int m = 0; m < ROWS; ++m)
        for (int j = 0; j < 2; ++j)
          acc[m][j] = _mm512_mul_ps(_mm512_loadu_ps(sums + m * a.D + j * LANES), _mm512_set1_ps(s.decay[row + m]));
      const bf16* weights = s.weights.data() + row * GROUP_KEYS;
      for (int key = 0; key < num_keys; key += BLOCK) {
        const int pairs = std::min(num_keys - key, BLOCK) / 2;
        multiply<ROWS>(weights + key, GROUP_KEYS, values + key / BLOCK * block_stride + column * BLOCK, pairs, acc);
      }
      if (num_keys % 2) multiply<ROWS>(weights + num_keys - 1, GROUP_KEYS, s.last_pair.data() + 2 * column, 1, acc);
      for (int m = 0; m < ROWS; ++m)
        for (int j = 0; j < 2; ++j) _mm512_storeu_ps(sums + m * a.D + j * LANES, acc[m][j]);
    }
  });
}

// Calls `body` for each of a tile's rows, with its head and its token: heads of keys, tokens, their queries.
template <typename Body>
inline void by_queries(const Tile& tile, int64_t share, Body body) {
  int64_t row = 0;
  for (int64_t head = tile.head; head < tile.head + tile.heads; ++head)
    for (int token = 0; token < tile.count; ++token)
      for (int64_t query = head * share; query < (head + 1) * share; ++query) body(row++, query, token);
}

// Asks for `count` lines of each block of values, from line `first` on. It pays while decoding, when memory is what is
// waited for and would rest while scores become weights; up to half of the values are asked for so.
inline void ask_for(const bf16* values, int64_t block_stride, int num_keys, int64_t first, int64_t count) {
  for (int key = 0; key < num_keys; key += BLOCK, values += block_stride)
    for (int64_t line = first; line < first + count; ++line) _mm_prefetch((const char*)(values + line * LINE), _MM_HINT_T1);
}

inline void attend_tile(const Attend& a, const Tile& tile, Scratch& s) {
  const Run& run = a.runs[tile.run];
  const int64_t share = a.H / a.K, each = tile.count * share, rows = tile.heads * each;
  by_queries(tile, share, [&](int64_t row, int64_t head, int token) {
    const bf16* query = a.query + (run.start + tile.first + token) * a.query_stride + head * a.D;
    std::copy(query, query + a.D, s.query.data() + row * a.D);
    s.highest[row] = -INF;
    s.total[row] = 0.0f;
  });
  std::fill(s.sums.begin(), s.sums.begin() + rows * a.D, 0.0f);
  std::fill(s.last_pair.begin(), s.last_pair.end(), 0);
  const int past = run.length - run.count + tile.first;  // tokens before the tile's first
  const int end = past + tile.count;
  const int first = a.window ? std::max<int>(0, past + 1 - a.window) / GROUP_KEYS * GROUP_KEYS : 0;
  const int64_t head_stride = a.D * BLOCK, block_stride = a.K * head_stride;
  const int64_t lines = tile.count == 1 ? tile.heads * head_stride / LINE / 2 / rows : 0;
  for (int start = first; start < end; start += GROUP_KEYS) {
    const int num_keys = std::min(GROUP_KEYS, end - start);
    const int64_t at = (run.base + start) / BLOCK * block_stride + tile.head * head_stride;
    for (int column = 0; column < num_keys; column += BLOCK)
      for (int64_t head = 0; head < tile.heads; ++head)
        score_block(
            a, a.keys + at + column / BLOCK * block_stride + head * head_stride, head * each, (head + 1) * each, s, column);
    by_queries(tile, share, [&](int64_t row, int64_t, int token) {
      ask_for(a.values + at, block_stride, num_keys, row * lines, lines);
      const int high = past + token + 1, low = a.window ? high - int(a.window) : 0;
      if (low <= start && high - start >= GROUP_KEYS)
        weigh<true>(s, row);
      else
        weigh<false>(s, row, (num_keys + BLOCK - 1) / BLOCK * BLOCK, low - start, high - start);
    });
    for (int64_t head = 0; head < tile.heads; ++head)
      add_values(a, a.values + at + head * head_stride, block_stride, head * each, (head + 1) * each, num_keys, s);
  }
  by_queries(tile, share, [&](int64_t row, int64_t head, int token) {
    float factor = 1.0f / s.total[row];
    if (a.sinks) {  // a further key of that score, without a value
      const float sink = a.sinks[head] * LOG2E, highest = std::max(s.highest[row], sink);
      const float decay = exp2_one(s.highest[row] - highest);
      factor = decay / (s.total[row] * decay + exp2_one(sink - highest));
    }
    bf16* out = a.out + ((run.start + tile.first + token) * a.H + head) * a.D;
    for (int64_t d = 0; d < a.D; d += LANES)
      store_bf16(out + d, _mm512_mul_ps(_mm512_loadu_ps(s.sums.data() + row * a.D + d), _mm512_set1_ps(factor)));
  });
}

inline void attend(const Attend& a) {
  const int64_t share = a.H / a.K;
  const int32_t tokens = std::max<int64_t>(1, TILE_ROWS / share);
  const int32_t max_rows = tokens * share;
  // one token's heads of keys lie next to each other: read them together, where enough rows keep all threads busy
  const bool few = a.num_runs < 2 * num_threads();
  std::vector<Tile> tiles;
  for (int32_t run = 0; run < a.num_runs; ++run)
    for (int32_t first = 0; first < a.runs[run].count; first += tokens)
      for (int32_t head = 0, heads; head < a.K; head += heads) {
        const int32_t count = std::min(tokens, a.runs[run].count - first);
        heads = few ? 1 : std::clamp<int32_t>(max_rows / (count * share), 1, a.K - head);
        tiles.push_back({run, first, count, head, heads});
      }
#pragma omp parallel num_threads(num_threads())
  {
    Scratch scratch(max_rows, a.D);
    // the last tiles see most: begin with them
#pragma omp for schedule(dynamic, 1)
    for (int64_t index = int64_t(tiles.size()) - 1; index >= 0; --index) attend_tile(a, tiles[index], scratch);
  }
}

}  // namespace docmill
