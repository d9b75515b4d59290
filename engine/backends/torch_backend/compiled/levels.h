// A tile's levels as bytes, and their sums of products with whole numbers.
//
// As engine/codecs/level_fields.py packs them: rows of a tile are what is added up, channels of keys,
// positions of values; a unit is four rows of up to 64 columns, side by side, byte by byte, so that
// one instruction multiplies and adds four. Sums of whole numbers are exact in any order, so the
// bits are the same on every processor.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace kakeya {

constexpr int BLOCK = 64;  // columns that are added up together
constexpr int WHOLE_LANES = BLOCK / LANES;
constexpr int QUAD = 4;    // rows that lie side by side
constexpr int UNIT = QUAD * BLOCK;

// Where the unit of rows 4 `quad` .. 4 `quad` + 3 and of columns `block` onwards begins.
inline std::int64_t unit_at(int rows, int columns, int bits, int block, int quad) {
    return (static_cast<std::int64_t>(rows) * block + static_cast<std::int64_t>(quad) * QUAD * std::min(BLOCK, columns - block)) * bits / 8;
}

// The sizes of a level's fields, of which each is a bit of `bits`.
constexpr int FIELDS[] = {8, 4, 2, 1};

// Bit i of a byte as byte i of eight, and back. Bytes are little-endian.
constexpr std::uint64_t EACH = 0x0101010101010101u;

inline std::uint64_t bytes_of_bits(std::uint8_t bits) {
    // Byte i has bit i alone, which 0x7f carries to the top.
    return (((bits * EACH) & 0x8040201008040201u) + 0x7f * EACH) >> 7 & EACH;
}

inline std::uint8_t bits_of_bytes(std::uint64_t bytes) { return static_cast<std::uint8_t>((bytes & EACH) * 0x0102040810204080u >> 56); }

// A unit's levels, each a byte; `count` of them, a multiple of 16.
inline void spread_some(const std::uint8_t* unit, int bits, int count, std::uint8_t* to) {
    std::memset(to, 0, static_cast<std::size_t>(count));
    int shift = 0;
    for (const int size : FIELDS) {
        if (!(bits & size)) continue;
        const int part = count * size / 8, mask = (1 << size) - 1;
        if (size == 1)
            for (int i = 0; i < part; ++i) {
                std::uint64_t eight;
                std::memcpy(&eight, to + 8 * i, sizeof eight);
                eight |= bytes_of_bits(unit[i]) << shift;
                std::memcpy(to + 8 * i, &eight, sizeof eight);
            }
        else
            for (int first = 0; first < count; first += part)
                for (int i = 0, lower = size * first / part; i < part; ++i) to[first + i] |= (unit[i] >> lower & mask) << shift;
        unit += part;
        shift += size;
    }
}

// The other way.
inline void gather_some(const std::uint8_t* levels, int bits, int count, std::uint8_t* unit) {
    int shift = 0;
    for (const int size : FIELDS) {
        if (!(bits & size)) continue;
        const int part = count * size / 8, mask = (1 << size) - 1;
        std::memset(unit, 0, static_cast<std::size_t>(part));
        if (size == 1)
            for (int i = 0; i < part; ++i) {
                std::uint64_t eight;
                std::memcpy(&eight, levels + 8 * i, sizeof eight);
                unit[i] = bits_of_bytes(eight >> shift);
            }
        else
            for (int first = 0; first < count; first += part)
                for (int i = 0, upper = size * first / part; i < part; ++i) unit[i] |= (levels[first + i] >> shift & mask) << upper;
        unit += part;
        shift += size;
    }
}

#if KAKEYA_AVX512

// The levels of whole units as they lie, each times 2 ** `shift` of its part: no bit is moved but of three.
template <int BITS>
struct PackedUnits {
    const std::uint8_t* units;

    static constexpr int shift(int part) {
        if (BITS == 4) return part / 2 * 4;
        return BITS == 3 && part == 3 ? 0 : 2 * part;
    }

    void operator()(int quad, Ints (&found)[WHOLE_LANES]) const {
        const std::uint8_t* unit = units + quad * (UNIT * BITS / 8);
        if constexpr (BITS == 4) {
            for (int i = 0; i < 2; ++i) {
                const __m512i own = _mm512_loadu_si512(unit + i * BLOCK);
                found[i].v = _mm512_and_si512(own, _mm512_set1_epi8(0x0f));
                found[i + 2].v = _mm512_and_si512(own, _mm512_set1_epi8(static_cast<char>(0xf0)));
            }
        } else {
            const __m512i own = _mm512_loadu_si512(unit);
            for (int i = 0; i < WHOLE_LANES; ++i) {
                // With a third bit a level of the last part, times 64, would be no byte.
                const __m512i part = shift(i) == 2 * i ? own : _mm512_srli_epi16(own, 2 * i);
                found[i].v = _mm512_and_si512(part, _mm512_set1_epi8(static_cast<char>(3 << shift(i))));
                if constexpr (BITS == 3) {
                    __mmask64 upper;
                    std::memcpy(&upper, unit + BLOCK + i * sizeof upper, sizeof upper);
                    found[i].v = _mm512_mask_add_epi8(found[i].v, upper, found[i].v, _mm512_set1_epi8(static_cast<char>(4 << shift(i))));
                }
            }
        }
    }
};

template <int BITS>
inline void spread_whole(const std::uint8_t* unit, std::uint8_t* to) {
    Ints found[WHOLE_LANES];
    const PackedUnits<BITS> units{unit};
    units(0, found);
    // What is below a shifted level is 0, in the byte above too.
    for (int i = 0; i < WHOLE_LANES; ++i) _mm512_store_si512(to + i * BLOCK, _mm512_srli_epi16(found[i].v, units.shift(i)));
}

#endif

// Of `width` columns: [64, 4], zeros behind them.
inline void spread_unit(const std::uint8_t* unit, int bits, int width, std::uint8_t* to) {
#if KAKEYA_AVX512
    if (width == BLOCK) {
        switch (bits) {
            case 2: return spread_whole<2>(unit, to);
            case 3: return spread_whole<3>(unit, to);
            case 4: return spread_whole<4>(unit, to);
        }
    }
#endif
    spread_some(unit, bits, QUAD * width, to);
    if (width < BLOCK) std::memset(to + QUAD * width, 0, static_cast<std::size_t>(QUAD * (BLOCK - width)));
}

// Numbers as step * whole, of eight bits: with 15 of them the distributions of choices are no nearer
// (SmolLM2, four bits a level: 0.0019 nats, 0.0020 with 15), and attention takes a fifth longer.
constexpr float MOST_WHOLE = 127.0f;
constexpr float LEAST_MOST = 1.0e-30f;  // numbers none of which is larger are 0

// Numbers as they meet levels: `added` and `whole` are of the numbers, and of the whole ones in their place, to be
// added up.
struct Rounded8 {
    float step;
    Lanes added, whole;
};

// `count` numbers, a multiple of 16, as whole ones.
template <int COUNT>
inline Rounded8 round_whole(const Lanes* numbers, int own_count, std::int8_t* to) {
    const int count = COUNT ? COUNT : own_count;
    Lanes most = all(0.0f), added = all(0.0f), whole = all(0.0f);
    for (int i = 0; i < count / LANES; ++i) {
        most = larger(magnitude(numbers[i]), most);
        added = added + numbers[i];
    }
    const float largest_one = largest(most);
    // None of them is further than `MOST_WHOLE` steps from 0; where all are as good as 0, all are.
    const Lanes steps = all(largest_one > LEAST_MOST ? MOST_WHOLE / largest_one : 0.0f);
    Lanes near[COUNT ? COUNT / LANES : 1];
    for (int i = 0; i < count / LANES; ++i) {
        Lanes& own = near[COUNT ? i : 0];
        own = rounded(numbers[i] * steps);
        whole = whole + own;
        if (!COUNT) store(to + i * LANES, own);
    }
    if constexpr (COUNT)
        for (int i = 0; i < COUNT / LANES; i += 4) store_four(to + i * LANES, near[i], near[i + 1], near[i + 2], near[i + 3]);
    return {largest_one / MOST_WHOLE, added, whole};
}

// A tile's levels as bytes.
struct SpreadUnits {
    const std::uint8_t* levels;

    static constexpr int shift(int) { return 0; }
    void operator()(int quad, Ints (&found)[WHOLE_LANES]) const {
        for (int i = 0; i < WHOLE_LANES; ++i) found[i] = load_whole(levels + quad * UNIT + i * BLOCK);
    }
};

// The sums over `quads` of four rows of levels times ROWS rows of whole numbers.
template <int ROWS, class Units>
inline void whole_sums(const Units& units, int quads, const std::int8_t* const (&rows)[ROWS], Lanes (&found)[ROWS][WHOLE_LANES]) {
    Ints sums[ROWS][WHOLE_LANES];
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = whole(0);
#pragma GCC unroll 4
    for (int quad = 0; quad < quads; ++quad) {
        Ints own[WHOLE_LANES];
        units(quad, own);
        for (int row = 0; row < ROWS; ++row) {
            std::int32_t four;
            std::memcpy(&four, rows[row] + QUAD * quad, sizeof four);
            const Ints value = whole(four);
            for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = dot(sums[row][i], own[i], value);
        }
    }
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) found[row][i] = floats(lowered(sums[row][i], Units::shift(i)));
}

}  // namespace kakeya
