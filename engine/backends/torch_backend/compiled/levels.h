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

// A unit's levels, each a byte; `count` of them.
inline void spread_some(const std::uint8_t* unit, int bits, int count, std::uint8_t* to) {
    std::memset(to, 0, static_cast<std::size_t>(count));
    int shift = 0;
    for (const int size : FIELDS) {
        if (!(bits & size)) continue;
        const int part = count * size / 8, mask = (1 << size) - 1;
        if (size == 1)
            for (int i = 0; i < count; ++i) to[i] |= (unit[i / 8] >> i % 8 & 1) << shift;
        else
            for (int i = 0; i < count; ++i) to[i] |= (unit[i % part] >> size * (i / part) & mask) << shift;
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
            for (int i = 0; i < count; ++i) unit[i / 8] |= (levels[i] >> shift & 1) << i % 8;
        else
            for (int i = 0; i < count; ++i) unit[i % part] |= (levels[i] >> shift & mask) << size * (i / part);
        unit += part;
        shift += size;
    }
}

#if KAKEYA_AVX512

// Levels of 16 columns each, of a whole unit.
template <int BITS>
inline void levels_of_unit(const std::uint8_t* unit, Ints (&found)[WHOLE_LANES]) {
    if constexpr (BITS == 4) {
        const __m512i low = _mm512_set1_epi8(15);
        for (int i = 0; i < 2; ++i) {
            const __m512i own = _mm512_loadu_si512(unit + i * BLOCK);
            found[i].v = _mm512_and_si512(own, low);
            found[i + 2].v = _mm512_and_si512(_mm512_srli_epi16(own, 4), low);
        }
    } else {
        const __m512i low = _mm512_set1_epi8(3), own = _mm512_loadu_si512(unit);
        found[0].v = _mm512_and_si512(own, low);
        found[1].v = _mm512_and_si512(_mm512_srli_epi16(own, 2), low);
        found[2].v = _mm512_and_si512(_mm512_srli_epi16(own, 4), low);
        found[3].v = _mm512_and_si512(_mm512_srli_epi16(own, 6), low);
        if constexpr (BITS == 3)
            for (int i = 0; i < WHOLE_LANES; ++i) {
                __mmask64 upper;
                std::memcpy(&upper, unit + BLOCK + i * sizeof upper, sizeof upper);
                found[i].v = _mm512_mask_add_epi8(found[i].v, upper, found[i].v, _mm512_set1_epi8(4));
            }
    }
}

template <int BITS>
inline void spread_whole(const std::uint8_t* unit, std::uint8_t* to) {
    Ints found[WHOLE_LANES];
    levels_of_unit<BITS>(unit, found);
    for (int i = 0; i < WHOLE_LANES; ++i) _mm512_store_si512(to + i * BLOCK, found[i].v);
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

// Numbers as they meet levels.
struct Rounded8 {
    float step;
    Lanes added, whole;  // of the numbers, and of the whole ones in their place: to be added up
};

// `count` numbers, a multiple of 16, as whole ones: COUNT of them, or a count known when it runs.
template <int COUNT>
inline Rounded8 round_whole(const float* weights, const float* scales, int own_count, float* scaled, std::int8_t* to) {
    const int count = COUNT ? COUNT : own_count;
    Lanes own[COUNT ? COUNT / LANES : 1], most = all(0.0f), added = all(0.0f), whole = all(0.0f);
    for (int i = 0; i < count; i += LANES) {
        const Lanes number = load(weights + i) * load(scales + i);
        if constexpr (COUNT > 0) own[i / LANES] = number;
        else store(scaled + i, number);
        most = larger(larger(number, all(0.0f) - number), most);
        added = added + number;
    }
    const float largest_one = largest(most);
    // None of them is further than `MOST_WHOLE` steps from 0; where all are as good as 0, all are.
    const Lanes steps = all(largest_one > LEAST_MOST ? MOST_WHOLE / largest_one : 0.0f);
    for (int i = 0; i < count; i += LANES) {
        Lanes near;
        if constexpr (COUNT > 0) near = rounded(own[i / LANES] * steps);
        else near = rounded(load(scaled + i) * steps);
        store(to + i, near);
        whole = whole + near;
    }
    return {largest_one / MOST_WHOLE, added, whole};
}

// The sums over `quads` of four rows of levels, which `read` gives, times ROWS rows of whole numbers.
template <int ROWS, class Read>
inline void whole_sums(const Read& read, int quads, const std::int8_t* const (&rows)[ROWS], Lanes (&found)[ROWS][WHOLE_LANES]) {
    Ints sums[ROWS][WHOLE_LANES];
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = whole(0);
    for (int quad = 0; quad < quads; ++quad) {
        Ints own[WHOLE_LANES];
        read(quad, own);
        for (int row = 0; row < ROWS; ++row) {
            std::int32_t four;
            std::memcpy(&four, rows[row] + QUAD * quad, sizeof four);
            const Ints value = whole(four);
            for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = dot(sums[row][i], own[i], value);
        }
    }
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) found[row][i] = floats(sums[row][i]);
}

}  // namespace kakeya
