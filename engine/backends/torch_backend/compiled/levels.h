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

// Of a whole unit.
template <int BITS>
inline void spread_whole(const std::uint8_t* unit, std::uint8_t* to) {
    __m512i found[WHOLE_LANES];
    if constexpr (BITS == 4) {
        const __m512i low = _mm512_set1_epi8(15);
        for (int i = 0; i < 2; ++i) {
            const __m512i own = _mm512_loadu_si512(unit + i * BLOCK);
            found[i] = _mm512_and_si512(own, low);
            found[i + 2] = _mm512_and_si512(_mm512_srli_epi16(own, 4), low);
        }
    } else {
        const __m512i low = _mm512_set1_epi8(3), own = _mm512_loadu_si512(unit);
        found[0] = _mm512_and_si512(own, low);
        found[1] = _mm512_and_si512(_mm512_srli_epi16(own, 2), low);
        found[2] = _mm512_and_si512(_mm512_srli_epi16(own, 4), low);
        found[3] = _mm512_and_si512(_mm512_srli_epi16(own, 6), low);
        if constexpr (BITS == 3)
            for (int i = 0; i < WHOLE_LANES; ++i) {
                __mmask64 upper;
                std::memcpy(&upper, unit + BLOCK + i * sizeof upper, sizeof upper);
                found[i] = _mm512_mask_add_epi8(found[i], upper, found[i], _mm512_set1_epi8(4));
            }
    }
    for (int i = 0; i < WHOLE_LANES; ++i) _mm512_store_si512(to + i * BLOCK, found[i]);
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

// Of `count` numbers, a multiple of 16: their largest, and lanes of their sum.
struct Extent {
    float most;
    Lanes added;
};

inline Extent extent_of(const float* numbers, int count) {
    Lanes most = all(0.0f), added = all(0.0f);
    for (int i = 0; i < count; i += LANES) {
        const Lanes own = load(numbers + i);
        most = larger(larger(own, all(0.0f) - own), most);
        added = added + own;
    }
    return {largest(most), added};
}

// How many steps of one make the largest; 0 where all are as good as 0.
inline float steps_in(float most) { return most > LEAST_MOST ? MOST_WHOLE / most : 0.0f; }

// The numbers in so many `steps` a unit, whole; lanes of their sum.
inline Lanes round_whole(const float* numbers, int count, float steps, std::int8_t* to) {
    const Lanes each = all(steps), bound = all(MOST_WHOLE);
    Lanes added = all(0.0f);
    for (int i = 0; i < count; i += LANES) {
        // A number that is none is the lower bound.
        const Lanes near = smaller(larger(rounded(load(numbers + i) * each), all(0.0f) - bound), bound);
        store(to + i, near);
        added = added + near;
    }
    return added;
}

// The sums over `quads` of spread rows of levels times ROWS rows of whole numbers.
template <int ROWS>
inline void whole_sums(const std::uint8_t* levels, int quads, const std::int8_t* const (&rows)[ROWS], Lanes (&found)[ROWS][WHOLE_LANES]) {
    Ints sums[ROWS][WHOLE_LANES];
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = whole(0);
    for (int quad = 0; quad < quads; ++quad, levels += UNIT) {
        Ints own[WHOLE_LANES];
        for (int i = 0; i < WHOLE_LANES; ++i) own[i] = load_whole(levels + i * BLOCK);
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
