// Sums of rows with a panel's weights that are whole numbers of few bits, in blocks with a scale.

#pragma once

#include <cstdint>

#include "decoder.h"
#include "lanes.h"
#include "number_sums.h"
#include "rounding.h"

namespace kakeya {

// The blocks of a panel. Weight w of a column is, of int8, its scale times (w - 128);
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

#if KAKEYA_AVX2
inline std::int32_t begun(const Int8Block&, std::int32_t) { return 0; }
#else
inline std::int32_t begun(const Int8Block&, std::int32_t sum) { return -128 * sum; }
#endif
inline std::int32_t begun(const Int4Block&, std::int32_t) { return 0; }
inline std::int32_t begun(const Int2Block&, std::int32_t) { return 0; }

#if KAKEYA_AVX2
template <int ROWS, int STEP>
[[gnu::always_inline]] inline void dots(const Int8Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP], Stretch& of) {
    for (int four = 0; four < GROUP / 4; ++four)
        for (int lane = 0; lane < STEP; ++lane) {
            of.ahead.more();
            const Ints own = below_128(load_whole(block.numbers[four][(part + lane) * LANES])), size = magnitude(own);
            for (int row = 0; row < ROWS; ++row) found[row][lane] = signed_dot(found[row][lane], size, own, whole(bits_of(numbers[row] + 4 * four)));
        }
}

// A group of weights below 16 is summed in halves of 16 bits, which hold it.
template <int ROWS, int STEP>
struct Halves {
    static_assert(GROUP == 32);
    Ints of[ROWS][STEP];

    Halves() {
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) of[row][lane] = whole(0);
    }
    // Of four inputs, those from `at` on.
    void add(const std::int8_t* (&numbers)[ROWS], int at, int lane, Ints weights) {
        for (int row = 0; row < ROWS; ++row) of[row][lane] = few_added(of[row][lane], weights, whole(bits_of(numbers[row] + at)));
    }
    void fold_into(Ints (&found)[ROWS][STEP]) const {
        for (int row = 0; row < ROWS; ++row)
            for (int lane = 0; lane < STEP; ++lane) found[row][lane] = plus(found[row][lane], folded(of[row][lane]));
    }
};

template <int ROWS, int STEP>
[[gnu::always_inline]] inline void dots(const Int4Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP], Stretch& of) {
    Halves<ROWS, STEP> halves;
    for (int eight = 0; eight < GROUP / 8; ++eight)
        for (int lane = 0; lane < STEP; ++lane) {
            of.ahead.more();
            const Ints own = load_whole(block.numbers[eight][(part + lane) * LANES]);
            halves.add(numbers, 8 * eight, lane, low_halves(own));
            halves.add(numbers, 8 * eight + 4, lane, high_halves(own));
        }
    halves.fold_into(found);
}

template <int ROWS, int STEP>
[[gnu::always_inline]] inline void dots(const Int2Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP], Stretch& of) {
    Halves<ROWS, STEP> halves;
    for (int sixteen = 0; sixteen < GROUP / 16; ++sixteen)
        for (int lane = 0; lane < STEP; ++lane) {
            of.ahead.more();
            const Ints packed = load_whole(block.numbers[sixteen][(part + lane) * LANES]);
            for (int four = 0; four < 4; ++four) halves.add(numbers, 16 * sixteen + 4 * four, lane, low_quarters(lowered(packed, 2 * four)));
        }
    halves.fold_into(found);
}
#else
template <int ROWS, int STEP>
[[gnu::always_inline]] inline void dots(const Int8Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP], Stretch& of) {
    for (int four = 0; four < GROUP / 4; ++four) {
        Ints own[STEP];
        for (int lane = 0; lane < STEP; ++lane) {
            of.ahead.more();
            own[lane] = load_whole(block.numbers[four][(part + lane) * LANES]);
        }
        for (int row = 0; row < ROWS; ++row) {
            const Ints value = whole(bits_of(numbers[row] + 4 * four));
            for (int lane = 0; lane < STEP; ++lane) found[row][lane] = dot(found[row][lane], own[lane], value);
        }
    }
}

template <int ROWS, int STEP>
[[gnu::always_inline]] inline void dots(const Int4Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP], Stretch& of) {
    for (int eight = 0; eight < GROUP / 8; ++eight) {
        Ints low[STEP], high[STEP];
        for (int lane = 0; lane < STEP; ++lane) {
            of.ahead.more();
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
[[gnu::always_inline]] inline void dots(const Int2Block& block, int part, const std::int8_t* (&numbers)[ROWS], Ints (&found)[ROWS][STEP], Stretch& of) {
    for (int sixteen = 0; sixteen < GROUP / 16; ++sixteen) {
        Ints packed[STEP];
        for (int lane = 0; lane < STEP; ++lane) {
            of.ahead.more();
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
// inputs what rounding left of each is summed too. A block's columns go as many at once as the registers have room for:
// the first cache has all of it meanwhile.
template <int ROWS, bool FINE, class Block>
inline void add_up_blocks(const Inputs& inputs, int first, int count, Stretch of, const Block* blocks, Lanes (*all_sums)[WIDE]) {
    constexpr int SUMS = FINE ? 2 * ROWS : ROWS;
    constexpr int STEP = KAKEYA_AVX512 || (KAKEYA_AVX2 && SUMS <= 2) ? WIDE : 1;
    const int groups = count / GROUP;
    Lanes sums[ROWS][WIDE];
    take_up(sums, all_sums, 0);
    for (int group = of.begin / GROUP; group < of.end / GROUP; ++group) {
        const Block& block = blocks[group - of.begin / GROUP];
        for (int part = 0; part < WIDE; part += STEP) {
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
            dots<SUMS, STEP>(block, part, numbers, own, of);
            for (int row = 0; row < ROWS; ++row) {
                const std::int64_t at = static_cast<std::int64_t>(first + row) * groups + group;
                for (int lane = 0; lane < STEP; ++lane) {
                    Lanes all_of = floats(own[row][lane]);
                    if constexpr (FINE) all_of = fused(floats(own[ROWS + row][lane]), all(1.0f / PARTS), all_of);
                    Lanes& sum = sums[row][part + lane];
                    sum = added(block, (part + lane) * LANES, all_of, inputs.scales[at], inputs.scaled_sums[at], sum);
                }
            }
        }
    }
    put_down(sums, all_sums, 0);
}

template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, Stretch of, const Int8Block* blocks, Lanes (*sums)[WIDE]) {
    add_up_blocks<ROWS, false>(inputs, first, count, of, blocks, sums);
}
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, Stretch of, const Int4Block* blocks, Lanes (*sums)[WIDE]) {
    add_up_blocks<ROWS, false>(inputs, first, count, of, blocks, sums);
}
template <int ROWS>
inline void add_up(const Inputs& inputs, int first, int count, Stretch of, const Int2Block* blocks, Lanes (*sums)[WIDE]) {
    add_up_blocks<ROWS, false>(inputs, first, count, of, blocks, sums);
}

template <int ROWS, class Block>
inline void add_up(const Inputs& inputs, int first, int count, Stretch of, const Fine<Block>* blocks, Lanes (*sums)[WIDE]) {
    add_up_blocks<ROWS, true, Block>(inputs, first, count, of, blocks, sums);
}

}  // namespace kakeya
