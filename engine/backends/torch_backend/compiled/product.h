// Products of rows with weights in panels.
//
// An output is the sum over the inputs in ascending order, one fused multiply-add each, of pairs
// by twos, the second first, of whole numbers each 32: its bits depend on the row and the weights alone, however many rows and
// threads there are.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "block_sums.h"
#include "decoder.h"
#include "lanes.h"
#include "number_sums.h"
#include "rounding.h"

namespace kakeya {

constexpr int FIRST_CACHE_BYTES = 8192;  // a quarter of the smallest: rows, sums and what is asked for need room too

// How many of these a panel has for so many inputs, how many rows the registers have room for, and how many inputs' weights
// stay in the first cache while one pass after another takes them.
template <class Weight, int INPUTS = 1, int ROWS = MOST_ROWS>
struct NumberLayout {
    static constexpr int rows = ROWS;
    static constexpr int stretch = FIRST_CACHE_BYTES * INPUTS / (PANEL * static_cast<int>(sizeof(Weight)));
    static_assert(stretch % INPUTS == 0);
    static std::int64_t size(int inputs) { return static_cast<std::int64_t>(inputs) / INPUTS * PANEL; }
};
template <class Block, int ROWS = MOST_ROWS / 2>
struct BlockLayout {
    static constexpr int rows = ROWS;
    static constexpr int stretch = FIRST_CACHE_BYTES / static_cast<int>(sizeof(Block)) * GROUP;
    static std::int64_t size(int inputs) { return inputs / GROUP; }
};

template <class Weight>
struct Layout : NumberLayout<Weight> {};
template <>
struct Layout<Pair> : NumberLayout<Pair, 2> {};
template <>
struct Layout<Int8Block> : BlockLayout<Int8Block, KAKEYA_AVX2 ? 4 : MOST_ROWS / 2> {};
template <>
struct Layout<Int4Block> : BlockLayout<Int4Block, KAKEYA_AVX2 ? 4 : MOST_ROWS / 2> {};
template <>
struct Layout<Int2Block> : BlockLayout<Int2Block> {};
template <class Block>
struct Layout<Fine<Block>> : BlockLayout<Block, 2> {};
template <>
struct Layout<Fine<Int4Block>> : BlockLayout<Int4Block, KAKEYA_AVX2 ? 4 : 2> {};

template <class Weight>
inline const Weight* weights_of(const KakeyaMatrix& matrix, int panel, int from) {
    return static_cast<const Weight*>(matrix.panels) + panel * Layout<Weight>::size(matrix.inputs) + Layout<Weight>::size(from);
}

template <int ROWS, class Weight>
inline void some_rows(const KakeyaMatrix& matrix, const Inputs& inputs, int rows, int first, int panel, Stretch of, Lanes (*sums)[WIDE]) {
    if (rows == ROWS) {
        add_up<ROWS>(inputs, first, matrix.inputs, of, weights_of<Weight>(matrix, panel, of.begin), sums);
    } else if constexpr (ROWS > 1) {
        some_rows<ROWS - 1, Weight>(matrix, inputs, rows, first, panel, of, sums);
    }
}

// With the matrix's bias, where it has one.
template <class Take>
inline void given(const KakeyaMatrix& matrix, int row, int panel, Lanes (&sums)[WIDE], const Take& take) {
    if (matrix.bias)
        for (int lane = 0; lane < WIDE; ++lane) sums[lane] = sums[lane] + load(matrix.bias + panel * PANEL + lane * LANES);
    take(row, panel, sums);
}

// take(row, panel, outputs) gets the outputs of each row of inputs [rows, matrix.inputs]; MOST rows go at once at most.
template <class Weight, int MOST = Layout<Weight>::rows, class Take>
inline void one_panel(const KakeyaMatrix& matrix, const Inputs& inputs, int rows, int panel, const Take& take) {
    // What one pass reads once needs no cache; on other processors stretches were not measured.
    const bool is_cut = KAKEYA_AVX2 && rows > WHOLE_ROWS;
    const int stretch = is_cut ? Layout<Weight>::stretch : matrix.inputs, passes = (rows + MOST - 1) / MOST;
    struct Sums {
        Lanes of[WIDE];
    };
    thread_local std::vector<Sums> sums;
    sums.assign(rows, Sums{});
    for (int begin = 0; begin < matrix.inputs; begin += stretch) {
        const char* coming = reinterpret_cast<const char*>(weights_of<Weight>(matrix, panel, begin)) + WEIGHTS_AHEAD;
        int first = 0;
        // As many in each pass as there can be: one row alone takes as long as several.
        for (int pass = 0; pass < passes; ++pass) {
            const int some = (rows - first + passes - pass - 1) / (passes - pass);
            // Of the stretch that comes each pass asks for its part, so that memory is as busy in all of them.
            const Ahead ahead = is_cut ? Ahead(coming + FIRST_CACHE_BYTES * pass / passes, passes, false) : Ahead(coming, 1, passes == 1);
            some_rows<MOST, Weight>(matrix, inputs, some, first, panel, {begin, std::min(begin + stretch, matrix.inputs), ahead}, &sums[first].of);
            first += some;
        }
    }
    for (int row = 0; row < rows; ++row) given(matrix, row, panel, sums[row].of, take);
}

// Calls make for the weights of the matrix's format.
template <class Make>
inline auto by_format(const KakeyaMatrix& matrix, const Make& make) {
    switch (matrix.format) {
        case KAKEYA_INT8: return make.template operator()<Int8Block>();
        case KAKEYA_INT4: return make.template operator()<Int4Block>();
        case KAKEYA_INT2: return make.template operator()<Int2Block>();
        case KAKEYA_FINE_INT8: return make.template operator()<Fine<Int8Block>>();
        case KAKEYA_FINE_INT4: return make.template operator()<Fine<Int4Block>>();
        case KAKEYA_PAIRS: return make.template operator()<Pair>();
        case KAKEYA_BFLOAT16: return make.template operator()<bfloat16>();
        default: return make.template operator()<float>();
    }
}

// Where a panel begins; that behind the last one is where they end.
inline const char* panel_at(const KakeyaMatrix& matrix, int panel) {
    return by_format(matrix, [&]<class Weight>() { return reinterpret_cast<const char*>(weights_of<Weight>(matrix, panel, 0)); });
}

template <class Take>
inline void panel_of(const KakeyaMatrix& matrix, const Inputs& inputs, int rows, int panel, const Take& take) {
    by_format(matrix, [&]<class Weight>() { one_panel<Weight>(matrix, inputs, rows, panel, take); });
}

// The same of one row alone, with the same bits.
template <class Take>
inline void panel_of_row(const KakeyaMatrix& matrix, const Inputs& inputs, int row, int panel, const Take& take) {
    Lanes sums[1][WIDE] = {};
    by_format(matrix, [&]<class Weight>() {
        const Weight* weights = weights_of<Weight>(matrix, panel, 0);
        const Ahead ahead(reinterpret_cast<const char*>(weights) + WEIGHTS_AHEAD, 1, true);
        add_up<1>(inputs, row, matrix.inputs, {0, matrix.inputs, ahead}, weights, sums);
    });
    given(matrix, row, panel, sums[0], take);
}

inline int panels(const KakeyaMatrix& matrix) { return (matrix.columns + PANEL - 1) / PANEL; }

}  // namespace kakeya
