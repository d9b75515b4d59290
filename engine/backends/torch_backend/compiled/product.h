// Products of rows with weights in panels.
//
// An output is the sum over the inputs in ascending order, one fused multiply-add each, of pairs
// by twos, the second first, of whole numbers each 32: its bits depend on the row and the weights alone, however many rows and
// threads there are.

#pragma once

#include <cstddef>

#include "ahead.h"
#include "decoder.h"
#include "lanes.h"
#include "rounding.h"

namespace kakeya {

constexpr int PANEL = 32;
constexpr int WIDE = PANEL / LANES;
#if KAKEYA_AVX512 || KAKEYA_NEON
constexpr int MOST_ROWS = 12;
#else
constexpr int MOST_ROWS = 6;
#endif

constexpr int WEIGHTS_AHEAD = 8192;  // bytes

template <int ROWS>
inline void ask_ahead(const void* weights) {
    if constexpr (ROWS > 1) ask(static_cast<const char*>(weights) + WEIGHTS_AHEAD);
}

// Adds up ROWS rows of one panel. On processors with half as many registers each half of the
// panel by itself: a sum's order is the same.
template <int ROWS, class Weight>
inline void add_up(const Inputs& all_inputs, int first, int count, const Weight* panel, Lanes (&found)[ROWS][WIDE]) {
    const std::int64_t stride = count;
    const float* inputs = all_inputs.numbers + first * stride;
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
            ask_ahead<ROWS>(weights);
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
inline void add_up(const Inputs& inputs, int first, int count, const Pair* panel, Lanes (&found)[ROWS][WIDE]) {
    const Flushing flushing;
    const std::int64_t stride = count;
    const float* numbers = inputs.wide + first * stride;
    for (int part = 0; part < WIDE; ++part) {
        Lanes sums[ROWS];
        for (int row = 0; row < ROWS; ++row) sums[row] = all(0.0f);
        const Pair* weights = panel + part * LANES;
        for (int k = 0; k < count; k += 2, weights += PANEL) {
            ask_ahead<ROWS>(weights);
            const Ints own = load_whole(weights);
            const Lanes upper = upper_of(own);
            for (int row = 0; row < ROWS; ++row) sums[row] = fused(upper, all(numbers[row * stride + k + 1]), sums[row]);
            const Lanes lower = lower_of(own);
            for (int row = 0; row < ROWS; ++row) sums[row] = fused(lower, all(numbers[row * stride + k]), sums[row]);
        }
        for (int row = 0; row < ROWS; ++row) found[row][part] = sums[row];
    }
}
#else
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, const Pair* panel, Lanes (&found)[ROWS][WIDE]) {
    const Flushing flushing;
    const std::int64_t stride = count;
    const bfloat16* numbers = inputs.narrow + first * stride;
#if KAKEYA_AVX512 || KAKEYA_NEON
    constexpr int STEP = WIDE;
#else
    constexpr int STEP = 1;
#endif
    for (int part = 0; part < WIDE; part += STEP) {
        Lanes sums[ROWS][STEP];
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) sums[row][lane] = all(0.0f);
        const Pair* weights = panel + part * LANES;
        for (int k = 0; k < count; k += 2, weights += PANEL) {
            Ints own[STEP];
            for (int lane = 0; lane < STEP; ++lane) {
                ask_ahead<ROWS>(weights + lane * LANES);
                own[lane] = load_whole(weights + lane * LANES);
            }
            for (int row = 0; row < ROWS; ++row) {
                const Ints value = whole(bits_of(numbers + row * stride + k));
                for (int lane = 0; lane < STEP; ++lane) sums[row][lane] = pair_dot(sums[row][lane], own[lane], value);
            }
        }
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) found[row][part + lane] = sums[row][lane];
    }
}
#endif

// The blocks of a panel of whole numbers. Weight w of a column is, of int8, its scale times (w - 128);
// of int4 its scale times w, plus its minimum: both float16, as ggml's. Numbers go by four inputs: int4 has those of the
// next four in the high halves of its bytes, int2 those of the next fours in the higher quarters. Of int2
// w stands for its scale times (w - 1.5).
struct Int8Block {
    std::uint16_t scales[PANEL];
    std::uint8_t numbers[GROUP / 4][PANEL][4];
};

struct Int4Block {
    std::uint16_t scales[PANEL];
    std::uint16_t minima[PANEL];
    std::uint8_t numbers[GROUP / 8][PANEL][4];
};

struct Int2Block {
    std::uint16_t scales[PANEL];
    std::uint8_t numbers[GROUP / 16][PANEL][4];
};

inline std::int32_t begun(const Int8Block&, std::int32_t sum) { return -128 * sum; }
inline std::int32_t begun(const Int4Block&, std::int32_t) { return 0; }
inline std::int32_t begun(const Int2Block&, std::int32_t) { return 0; }

template <int ROWS, int STEP>
inline void dots(const Int8Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP]) {
    for (int four = 0; four < GROUP / 4; ++four) {
        Ints own[STEP];
        for (int lane = 0; lane < STEP; ++lane) {
            ask_ahead<ROWS>(block.numbers[four][(part + lane) * LANES]);
            own[lane] = load_whole(block.numbers[four][(part + lane) * LANES]);
        }
        for (int row = 0; row < ROWS; ++row) {
            const Ints value = whole(bits_of(numbers[row] + 4 * four));
            for (int lane = 0; lane < STEP; ++lane) found[row][lane] = dot(found[row][lane], own[lane], value);
        }
    }
}

#if KAKEYA_AVX2
// A group of weights below 16 is summed in halves of 16 bits, which hold it.
template <int ROWS, int STEP>
inline void dots(const Int4Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP]) {
    static_assert(STEP == 1 && GROUP == 32);
    Ints halves[ROWS];
    for (int row = 0; row < ROWS; ++row) halves[row] = whole(0);
    for (int eight = 0; eight < GROUP / 8; ++eight) {
        ask_ahead<ROWS>(block.numbers[eight][part * LANES]);
        const Ints own = load_whole(block.numbers[eight][part * LANES]);
        const Ints low = low_halves(own);
        for (int row = 0; row < ROWS; ++row) halves[row] = few_added(halves[row], low, whole(bits_of(numbers[row] + 8 * eight)));
        const Ints high = high_halves(own);
        for (int row = 0; row < ROWS; ++row) halves[row] = few_added(halves[row], high, whole(bits_of(numbers[row] + 8 * eight + 4)));
    }
    for (int row = 0; row < ROWS; ++row) found[row][0] = plus(found[row][0], folded(halves[row]));
}

template <int ROWS, int STEP>
inline void dots(const Int2Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP]) {
    static_assert(STEP == 1 && GROUP == 32);
    Ints halves[ROWS];
    for (int row = 0; row < ROWS; ++row) halves[row] = whole(0);
    for (int sixteen = 0; sixteen < GROUP / 16; ++sixteen) {
        ask_ahead<ROWS>(block.numbers[sixteen][part * LANES]);
        const Ints packed = load_whole(block.numbers[sixteen][part * LANES]);
        for (int four = 0; four < 4; ++four) {
            const Ints own = low_quarters(lowered(packed, 2 * four));
            for (int row = 0; row < ROWS; ++row) halves[row] = few_added(halves[row], own, whole(bits_of(numbers[row] + 16 * sixteen + 4 * four)));
        }
    }
    for (int row = 0; row < ROWS; ++row) found[row][0] = plus(found[row][0], folded(halves[row]));
}
#else
template <int ROWS, int STEP>
inline void dots(const Int4Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP]) {
    for (int eight = 0; eight < GROUP / 8; ++eight) {
        Ints low[STEP], high[STEP];
        for (int lane = 0; lane < STEP; ++lane) {
            ask_ahead<ROWS>(block.numbers[eight][(part + lane) * LANES]);
            const Ints own = load_whole(block.numbers[eight][(part + lane) * LANES]);
            low[lane] = low_halves(own);
            high[lane] = high_halves(own);
        }
        for (int row = 0; row < ROWS; ++row) {
            const Ints first = whole(bits_of(numbers[row] + 8 * eight)), next = whole(bits_of(numbers[row] + 8 * eight + 4));
            for (int lane = 0; lane < STEP; ++lane) found[row][lane] = dot(dot(found[row][lane], low[lane], first), high[lane], next);
        }
    }
}

template <int ROWS, int STEP>
inline void dots(const Int2Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP]) {
    for (int sixteen = 0; sixteen < GROUP / 16; ++sixteen) {
        Ints packed[STEP];
        for (int lane = 0; lane < STEP; ++lane) {
            ask_ahead<ROWS>(block.numbers[sixteen][(part + lane) * LANES]);
            packed[lane] = load_whole(block.numbers[sixteen][(part + lane) * LANES]);
        }
        for (int four = 0; four < 4; ++four) {
            Ints own[STEP];
            for (int lane = 0; lane < STEP; ++lane) own[lane] = low_quarters(lowered(packed[lane], 2 * four));
            for (int row = 0; row < ROWS; ++row) {
                const Ints value = whole(bits_of(numbers[row] + 16 * sixteen + 4 * four));
                for (int lane = 0; lane < STEP; ++lane) found[row][lane] = dot(found[row][lane], own[lane], value);
            }
        }
    }
}
#endif

inline Lanes added(const Int8Block& block, int at, Lanes dots, float scale, float, Lanes sum) {
    return fused(dots, load_halves(block.scales + at) * all(scale), sum);
}
inline Lanes added(const Int4Block& block, int at, Lanes dots, float scale, float scaled_sum, Lanes sum) {
    sum = fused(dots, load_halves(block.scales + at) * all(scale), sum);
    return fused(load_halves(block.minima + at), all(scaled_sum), sum);
}
inline Lanes added(const Int2Block& block, int at, Lanes dots, float scale, float scaled_sum, Lanes sum) {
    const Lanes scales = load_halves(block.scales + at);
    sum = fused(dots, scales * all(scale), sum);
    return fused(scales, all(-1.5f * scaled_sum), sum);
}

// The same blocks by inputs of fifteen bits.
template <class Block>
struct Fine : Block {};

// Within a block the sums are of whole numbers, and exact in any order; blocks go in ascending order. Of FINE
// inputs what rounding left of each is summed too.
template <int ROWS, bool FINE, class Block>
inline void add_up_blocks(const Inputs& inputs, int first, int count, const Block* blocks, Lanes (&found)[ROWS][WIDE]) {
#if KAKEYA_AVX512
    constexpr int STEP = WIDE;
#else
    constexpr int STEP = 1;
#endif
    constexpr int SUMS = FINE ? 2 * ROWS : ROWS;
    const int groups = count / GROUP;
    for (int part = 0; part < WIDE; part += STEP) {
        Lanes sums[ROWS][STEP];
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) sums[row][lane] = all(0.0f);
        for (int group = 0; group < groups; ++group) {
            const Block& block = blocks[group];
            const std::int8_t* numbers[SUMS];
            Ints own[SUMS][STEP];
            for (int row = 0; row < ROWS; ++row) {
                const std::int64_t at = static_cast<std::int64_t>(first + row) * groups + group;
                numbers[row] = inputs.whole + at * GROUP;
                for (int lane = 0; lane < STEP; ++lane) own[row][lane] = whole(begun(block, inputs.sums[at]));
                if constexpr (FINE) {
                    numbers[ROWS + row] = inputs.parts + at * GROUP;
                    for (int lane = 0; lane < STEP; ++lane) own[ROWS + row][lane] = whole(begun(block, inputs.part_sums[at]));
                }
            }
            dots<SUMS, STEP>(block, part, numbers, own);
            for (int row = 0; row < ROWS; ++row) {
                const std::int64_t at = static_cast<std::int64_t>(first + row) * groups + group;
                for (int lane = 0; lane < STEP; ++lane) {
                    Lanes all_of = floats(own[row][lane]);
                    if constexpr (FINE) all_of = fused(floats(own[ROWS + row][lane]), all(1.0f / PARTS), all_of);
                    sums[row][lane] = added(block, (part + lane) * LANES, all_of, inputs.scales[at], inputs.scaled_sums[at], sums[row][lane]);
                }
            }
        }
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) found[row][part + lane] = sums[row][lane];
    }
}

template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, const Int8Block* blocks, Lanes (&found)[ROWS][WIDE]) {
    add_up_blocks<ROWS, false>(inputs, first, count, blocks, found);
}
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, const Int4Block* blocks, Lanes (&found)[ROWS][WIDE]) {
    add_up_blocks<ROWS, false>(inputs, first, count, blocks, found);
}
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, const Int2Block* blocks, Lanes (&found)[ROWS][WIDE]) {
    add_up_blocks<ROWS, false>(inputs, first, count, blocks, found);
}

template <int ROWS, class Block>
inline void add_up(const Inputs& inputs, int first, int count, const Fine<Block>* blocks, Lanes (&found)[ROWS][WIDE]) {
    add_up_blocks<ROWS, true, Block>(inputs, first, count, blocks, found);
}

// How many of these a panel has, and how many rows the registers have room for.
template <class Weight>
struct Layout {
    static constexpr int rows = MOST_ROWS;
    static std::int64_t size(int inputs) { return static_cast<std::int64_t>(inputs) * PANEL; }
};
template <>
struct Layout<Pair> {
    static constexpr int rows = MOST_ROWS;
    static std::int64_t size(int inputs) { return static_cast<std::int64_t>(inputs) / 2 * PANEL; }
};
template <class Block, int ROWS = MOST_ROWS / 2>
struct BlockLayout {
    static constexpr int rows = ROWS;
    static std::int64_t size(int inputs) { return inputs / GROUP; }
};
template <>
struct Layout<Int8Block> : BlockLayout<Int8Block> {};
template <>
struct Layout<Int4Block> : BlockLayout<Int4Block, KAKEYA_AVX2 ? 4 : MOST_ROWS / 2> {};
template <>
struct Layout<Int2Block> : BlockLayout<Int2Block> {};
template <class Block>
struct Layout<Fine<Block>> : BlockLayout<Block, 2> {};
template <>
struct Layout<Fine<Int4Block>> : BlockLayout<Int4Block, KAKEYA_AVX2 ? 4 : 2> {};

template <int ROWS, class Weight, class Take>
inline void rows_of_panel(const KakeyaMatrix& matrix, const Inputs& inputs, int first, int panel, const Take& take) {
    Lanes found[ROWS][WIDE];
    const Weight* weights = static_cast<const Weight*>(matrix.panels) + panel * Layout<Weight>::size(matrix.inputs);
    add_up<ROWS>(inputs, first, matrix.inputs, weights, found);
    for (int row = 0; row < ROWS; ++row) {
        if (matrix.bias)
            for (int lane = 0; lane < WIDE; ++lane)
                found[row][lane] = found[row][lane] + load(matrix.bias + panel * PANEL + lane * LANES);
        take(first + row, panel, found[row]);
    }
}

template <int ROWS, class Weight, class Take>
inline void some_rows(const KakeyaMatrix& matrix, const Inputs& inputs, int rows, int first, int panel, const Take& take) {
    if (rows == ROWS) {
        rows_of_panel<ROWS, Weight>(matrix, inputs, first, panel, take);
    } else if constexpr (ROWS > 1) {
        some_rows<ROWS - 1, Weight>(matrix, inputs, rows, first, panel, take);
    }
}

// take(row, panel, outputs) gets the outputs of each row of inputs [rows, matrix.inputs]; MOST rows go at once at most.
template <class Weight, int MOST = Layout<Weight>::rows, class Take>
inline void one_panel(const KakeyaMatrix& matrix, const Inputs& inputs, int rows, int panel, const Take& take) {
    int first = 0;
    // As many in each pass as there can be: one row alone takes as long as several.
    for (int left = (rows + MOST - 1) / MOST; left > 0; --left) {
        const int some = (rows - first + left - 1) / left;
        some_rows<MOST, Weight>(matrix, inputs, some, first, panel, take);
        first += some;
    }
}

// Calls make for the weights of the matrix's format.
template <class Make>
inline void by_format(const KakeyaMatrix& matrix, const Make& make) {
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

template <class Take>
inline void panel_of(const KakeyaMatrix& matrix, const Inputs& inputs, int rows, int panel, const Take& take) {
    by_format(matrix, [&]<class Weight>() { one_panel<Weight>(matrix, inputs, rows, panel, take); });
}

// The same of one row alone, with the same bits.
template <class Take>
inline void panel_of_row(const KakeyaMatrix& matrix, const Inputs& inputs, int row, int panel, const Take& take) {
    by_format(matrix, [&]<class Weight>() { rows_of_panel<1, Weight>(matrix, inputs, row, panel, take); });
}

inline int panels(const KakeyaMatrix& matrix) { return (matrix.columns + PANEL - 1) / PANEL; }

}  // namespace kakeya
