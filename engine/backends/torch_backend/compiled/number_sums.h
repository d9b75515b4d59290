// Sums of rows with a panel's weights that are numbers themselves: float32, bfloat16, and pairs of it.

#pragma once

#include <cstdint>
#include <cstring>

#include "ahead.h"
#include "lanes.h"
#include "rounding.h"

namespace kakeya {

constexpr int PANEL = 32;
constexpr int WIDE = PANEL / LANES;
#if KAKEYA_AVX512 || KAKEYA_NEON
constexpr int MOST_ROWS = 12;
constexpr int WHOLE_ROWS = MOST_ROWS;
#else
constexpr int MOST_ROWS = 6;
constexpr int WHOLE_ROWS = 3;
#endif

// Half a panel at once, or all of it where the registers have room for the sums: each line of the weights is then
// read in its turn, and once. A sum's order is the same.
template <int ROWS>
constexpr int lanes_at_once() {
    return ROWS <= WHOLE_ROWS ? WIDE : 1;
}

constexpr int WEIGHTS_AHEAD = 8192;  // bytes

// The inputs `begin` to `end` of those of a row; `weights` of a panel begin there too. `ahead` of them more is asked for,
// each time that a line has been taken.
struct Stretch {
    int begin, end;
    Ahead ahead;
};

template <int ROWS, int STEP>
inline void take_up(Lanes (&own)[ROWS][STEP], const Lanes (*sums)[WIDE], int part) {
    for (int row = 0; row < ROWS; ++row)
        for (int lane = 0; lane < STEP; ++lane) own[row][lane] = sums[row][part + lane];
}

template <int ROWS, int STEP>
inline void put_down(const Lanes (&own)[ROWS][STEP], Lanes (*sums)[WIDE], int part) {
    for (int row = 0; row < ROWS; ++row)
        for (int lane = 0; lane < STEP; ++lane) sums[row][part + lane] = own[row][lane];
}

// Adds to the sums of ROWS rows from `first` on what a stretch of their `count` inputs gives in one panel.
template <int ROWS, class Weight>
inline void add_up(const Inputs& all_inputs, int first, int count, Stretch of, const Weight* panel, Lanes (*sums)[WIDE]) {
    const std::int64_t stride = count;
    const float* inputs = all_inputs.numbers + first * stride;
    constexpr int STEP = lanes_at_once<ROWS>();
    for (int part = 0; part < WIDE; part += STEP) {
        Lanes own[ROWS][STEP];
        take_up(own, sums, part);
        const Weight* weights = panel + part * LANES;
        for (int k = of.begin; k < of.end; ++k, weights += PANEL) {
            Lanes columns[STEP];
            for (int at = 0; at < STEP * LANES; at += LINE / static_cast<int>(sizeof(Weight))) of.ahead.more();
            for (int lane = 0; lane < STEP; ++lane) columns[lane] = load(weights + lane * LANES);
            for (int row = 0; row < ROWS; ++row) {
                const Lanes value = all(inputs[row * stride + k]);
                for (int lane = 0; lane < STEP; ++lane) own[row][lane] = fused(value, columns[lane], own[row][lane]);
            }
        }
        put_down(own, sums, part);
    }
}

// As many inputs as 32 bits have: two bfloat16 numbers, or four whole ones.
template <class Number>
inline std::int32_t bits_of(const Number* numbers) {
    std::int32_t found;
    std::memcpy(&found, numbers, sizeof found);
    return found;
}

// Two inputs' weights of a column, bfloat16 numbers.
struct Pair {
    bfloat16 numbers[2];
};

#if KAKEYA_AVX2
// The upper halves of two inputs' weights, for all rows, and then the lower ones: so the sums of
// MOST_ROWS rows stay in the sixteen registers.
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, Stretch of, const Pair* panel, Lanes (*sums)[WIDE]) {
    const Flushing flushing;
    const std::int64_t stride = count;
    const float* numbers = inputs.wide + first * stride;
    constexpr int STEP = lanes_at_once<ROWS>();
    for (int part = 0; part < WIDE; part += STEP) {
        Lanes own[ROWS][STEP];
        take_up(own, sums, part);
        const Pair* weights = panel + part * LANES;
        for (int k = of.begin; k < of.end; k += 2, weights += PANEL)
            for (int lane = 0; lane < STEP; ++lane) {
                of.ahead.more();
                const Ints columns = load_whole(weights + lane * LANES);
                const Lanes upper = upper_of(columns);
                for (int row = 0; row < ROWS; ++row) own[row][lane] = fused(upper, all(numbers[row * stride + k + 1]), own[row][lane]);
                const Lanes lower = lower_of(columns);
                for (int row = 0; row < ROWS; ++row) own[row][lane] = fused(lower, all(numbers[row * stride + k]), own[row][lane]);
            }
        put_down(own, sums, part);
    }
}
#else
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, Stretch of, const Pair* panel, Lanes (*sums)[WIDE]) {
    const Flushing flushing;
    const std::int64_t stride = count;
    const bfloat16* numbers = inputs.narrow + first * stride;
    constexpr int STEP = lanes_at_once<ROWS>();
    for (int part = 0; part < WIDE; part += STEP) {
        Lanes own[ROWS][STEP];
        take_up(own, sums, part);
        const Pair* weights = panel + part * LANES;
        for (int k = of.begin; k < of.end; k += 2, weights += PANEL) {
            Ints columns[STEP];
            for (int lane = 0; lane < STEP; ++lane) {
                of.ahead.more();
                columns[lane] = load_whole(weights + lane * LANES);
            }
            for (int row = 0; row < ROWS; ++row) {
                const Ints value = whole(bits_of(numbers + row * stride + k));
                for (int lane = 0; lane < STEP; ++lane) own[row][lane] = pair_dot(own[row][lane], columns[lane], value);
            }
        }
        put_down(own, sums, part);
    }
}
#endif

}  // namespace kakeya
