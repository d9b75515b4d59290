// The weights of single outputs, out of their panels: what a tied head embeds by.

#pragma once

#include <cstdint>

#include "block_sums.h"
#include "decoder.h"
#include "lanes.h"
#include "number_sums.h"
#include "product.h"

namespace kakeya {

inline void read_column(const float* panel, int column, int inputs, float* to) {
    for (int i = 0; i < inputs; ++i) to[i] = panel[i * PANEL + column];
}
inline void read_column(const bfloat16* panel, int column, int inputs, float* to) {
    for (int i = 0; i < inputs; ++i) to[i] = widened(panel[i * PANEL + column]);
}
inline void read_column(const Pair* panel, int column, int inputs, float* to) {
    for (int i = 0; i < inputs; ++i) to[i] = widened(panel[i / 2 * PANEL + column].numbers[i % 2]);
}

// The one of `column` among a block's float16 numbers.
inline float half_at(const std::uint16_t (&halves)[PANEL], int column) {
    float near[LANES];
    store(near, load_halves(halves + column / LANES * LANES));
    return near[column % LANES];
}

inline void read_block(const Int8Block& block, int column, float* to) {
    const float scale = half_at(block.scales, column);
    for (int i = 0; i < GROUP; ++i) to[i] = static_cast<float>(block.numbers[i / 4][column][i % 4] - 128) * scale;
}
inline void read_block(const Int4Block& block, int column, float* to) {
    const float scale = half_at(block.scales, column), minimum = half_at(block.minima, column);
    for (int i = 0; i < GROUP; ++i) to[i] = static_cast<float>(block.numbers[i / 8][column][i % 4] >> i % 8 / 4 * 4 & 15) * scale + minimum;
}
inline void read_block(const Int2Block& block, int column, float* to) {
    const float scale = half_at(block.scales, column);
    for (int i = 0; i < GROUP; ++i) to[i] = (static_cast<float>(block.numbers[i / 16][column][i % 4] >> i % 16 / 4 * 2 & 3) - 1.5f) * scale;
}

template <class Block>
inline void read_column(const Block* panel, int column, int inputs, float* to) {
    for (int group = 0; group < inputs / GROUP; ++group) read_block(panel[group], column, to + group * GROUP);
}

// As float32 numbers [matrix.inputs].
inline void row_of(const KakeyaMatrix& matrix, std::int64_t output, float* to) {
    const int panel = static_cast<int>(output / PANEL), column = static_cast<int>(output % PANEL);
    by_format(matrix, [&]<class Weight>() { read_column(weights_of<Weight>(matrix, panel, 0), column, matrix.inputs, to); });
}

}  // namespace kakeya
