// Products of rows with weights in panels.
//
// An output is the sum over the inputs in ascending order, one fused multiply-add each: its bits
// depend on the row and the weights alone, however many rows and threads there are.

#pragma once

#include "decoder.h"
#include "lanes.h"

namespace kakeya {

constexpr int PANEL = 32;
constexpr int WIDE = PANEL / LANES;
#if KAKEYA_AVX512 || KAKEYA_NEON
constexpr int MOST_ROWS = 12;
#else
constexpr int MOST_ROWS = 6;
#endif

// Adds up ROWS rows of one panel. On processors with half as many registers each half of the
// panel by itself: a sum's order is the same.
template <int ROWS, class Weight>
inline void add_up(const float* inputs, std::int64_t stride, const Weight* panel, int count, Lanes (&found)[ROWS][WIDE]) {
#if KAKEYA_AVX512 || KAKEYA_NEON
    constexpr int STEP = WIDE;
#else
    constexpr int STEP = 1;
#endif
    for (int part = 0; part < WIDE; part += STEP) {
        Lanes sums[ROWS][STEP];
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) sums[row][lane] = all(0.0f);
        const Weight* weights = panel + part * LANES;
        for (int k = 0; k < count; ++k, weights += PANEL) {
            Lanes own[STEP];
            for (int lane = 0; lane < STEP; ++lane) own[lane] = load(weights + lane * LANES);
            for (int row = 0; row < ROWS; ++row) {
                const Lanes value = all(inputs[row * stride + k]);
                for (int lane = 0; lane < STEP; ++lane) sums[row][lane] = fused(value, own[lane], sums[row][lane]);
            }
        }
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) found[row][part + lane] = sums[row][lane];
    }
}

template <int ROWS, class Weight, class Take>
inline void rows_of_panel(const KakeyaMatrix& matrix, const float* inputs, int first, int panel, const Take& take) {
    Lanes found[ROWS][WIDE];
    const std::int64_t inner = matrix.inputs;
    const Weight* weights = static_cast<const Weight*>(matrix.panels) + panel * inner * PANEL;
    add_up<ROWS, Weight>(inputs + first * inner, inner, weights, matrix.inputs, found);
    for (int row = 0; row < ROWS; ++row) {
        if (matrix.bias)
            for (int lane = 0; lane < WIDE; ++lane)
                found[row][lane] = found[row][lane] + load(matrix.bias + panel * PANEL + lane * LANES);
        take(first + row, panel, found[row]);
    }
}

template <int ROWS, class Weight, class Take>
inline void some_rows(const KakeyaMatrix& matrix, const float* inputs, int rows, int first, int panel, const Take& take) {
    if (rows == ROWS) {
        rows_of_panel<ROWS, Weight>(matrix, inputs, first, panel, take);
    } else if constexpr (ROWS > 1) {
        some_rows<ROWS - 1, Weight>(matrix, inputs, rows, first, panel, take);
    }
}

// take(row, panel, outputs) gets the outputs of each row of inputs [rows, matrix.inputs].
template <class Weight, class Take>
inline void one_panel(const KakeyaMatrix& matrix, const float* inputs, int rows, int panel, const Take& take) {
    int first = 0;
    for (; rows - first >= MOST_ROWS; first += MOST_ROWS) rows_of_panel<MOST_ROWS, Weight>(matrix, inputs, first, panel, take);
    if (first < rows) some_rows<MOST_ROWS - 1, Weight>(matrix, inputs, rows - first, first, panel, take);
}

template <class Take>
inline void panel_of(const KakeyaMatrix& matrix, const float* inputs, int rows, int panel, const Take& take) {
    if (matrix.format == KAKEYA_BFLOAT16) {
        one_panel<bfloat16>(matrix, inputs, rows, panel, take);
    } else {
        one_panel<float>(matrix, inputs, rows, panel, take);
    }
}

inline int panels(const KakeyaMatrix& matrix) { return (matrix.columns + PANEL - 1) / PANEL; }

}  // namespace kakeya
