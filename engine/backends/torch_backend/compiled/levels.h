// A tile's levels as bytes, and their sums of products with whole numbers.
//
// Rows of a tile are what is added up: channels of keys, positions of values. Four rows lie side by
// side, byte by byte, so that one instruction multiplies and adds four. Sums of whole numbers are
// exact in any order, so the bits are the same on every processor.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace kakeya {

constexpr int BLOCK = 64;  // columns that are added up together
constexpr int WHOLE_LANES = BLOCK / LANES;
constexpr int QUAD = 4;    // rows that lie side by side

// The bits of up to 64 columns; what is behind them is not.
inline std::uint64_t bits_from(const std::uint8_t* plane, std::int64_t first, int width) {
    std::uint64_t bits;
    std::memcpy(&bits, plane + first / 8, sizeof bits);
    return width < BLOCK ? bits & ((std::uint64_t{1} << width) - 1) : bits;
}

#if KAKEYA_AVX512

inline __m512i levels_of_row(const std::uint8_t* planes, std::int64_t plane_bytes, int bits, std::int64_t first, int width) {
    __m512i found = _mm512_maskz_set1_epi8(bits_from(planes, first, width), 1);
    for (int bit = 1; bit < bits; ++bit) {
        const __mmask64 own = bits_from(planes + bit * plane_bytes, first, width);
        found = _mm512_mask_add_epi8(found, own, found, _mm512_set1_epi8(static_cast<char>(1 << bit)));
    }
    return found;
}

// Four rows, `stride` bits apart: vector j has the columns 16 k + 4 j .. 16 k + 4 j + 3 in its k-th quarter.
inline void spread_quad(const std::uint8_t* planes, std::int64_t plane_bytes, int bits, std::int64_t first, int stride, int width,
                        std::uint8_t* to) {
    __m512i row[QUAD];
    for (int i = 0; i < QUAD; ++i) row[i] = levels_of_row(planes, plane_bytes, bits, first + i * stride, width);
    const __m512i low = _mm512_unpacklo_epi8(row[0], row[1]), high = _mm512_unpackhi_epi8(row[0], row[1]);
    const __m512i more_low = _mm512_unpacklo_epi8(row[2], row[3]), more_high = _mm512_unpackhi_epi8(row[2], row[3]);
    _mm512_store_si512(to, _mm512_unpacklo_epi16(low, more_low));
    _mm512_store_si512(to + BLOCK, _mm512_unpackhi_epi16(low, more_low));
    _mm512_store_si512(to + 2 * BLOCK, _mm512_unpacklo_epi16(high, more_high));
    _mm512_store_si512(to + 3 * BLOCK, _mm512_unpackhi_epi16(high, more_high));
}

// Sums of the columns as `spread_quad` has them, in ascending order.
inline void put_in_order(Lanes (&sums)[WHOLE_LANES]) {
    const __m512 low = _mm512_shuffle_f32x4(sums[0].v, sums[1].v, 0x44), more_low = _mm512_shuffle_f32x4(sums[2].v, sums[3].v, 0x44);
    const __m512 high = _mm512_shuffle_f32x4(sums[0].v, sums[1].v, 0xee), more_high = _mm512_shuffle_f32x4(sums[2].v, sums[3].v, 0xee);
    sums[0].v = _mm512_shuffle_f32x4(low, more_low, 0x88);
    sums[1].v = _mm512_shuffle_f32x4(low, more_low, 0xdd);
    sums[2].v = _mm512_shuffle_f32x4(high, more_high, 0x88);
    sums[3].v = _mm512_shuffle_f32x4(high, more_high, 0xdd);
}

#else

// Eight bits as bytes of 0 or 1.
inline std::uint64_t as_bytes(std::uint64_t bits) {
    const std::uint64_t apart = (bits & 0xff) * 0x0101010101010101ull & 0x8040201008040201ull;
    return (apart + 0x7f7f7f7f7f7f7f7full) >> 7 & 0x0101010101010101ull;
}

// Four rows, `stride` bits apart, column by column.
inline void spread_quad(const std::uint8_t* planes, std::int64_t plane_bytes, int bits, std::int64_t first, int stride, int width,
                        std::uint8_t* to) {
    std::uint8_t rows[QUAD][BLOCK];
    for (int i = 0; i < QUAD; ++i)
        for (int column = 0; column < BLOCK; column += 8) {
            std::uint64_t found = 0;
            for (int bit = 0; bit < bits; ++bit)
                found |= as_bytes(bits_from(planes + bit * plane_bytes, first + i * stride, width) >> column) << bit;
            for (int k = 0; k < 8; ++k) rows[i][column + k] = static_cast<std::uint8_t>(found >> 8 * k);
        }
    for (int column = 0; column < BLOCK; ++column)
        for (int i = 0; i < QUAD; ++i) to[QUAD * column + i] = rows[i][column];
}

inline void put_in_order(Lanes (&)[WHOLE_LANES]) {}

#endif

// Numbers as step * (128 * high + low), of 15 bits: what of the largest is lost is a 32,000th.
constexpr float MOST_WHOLE = 16319.0f;
constexpr float LEAST_MOST = 1.0e-30f;  // numbers none of which is larger are 0

struct WholeStep {
    float step;
    float lost;  // the sum of the numbers less that of what stands for them
};

// Parts of `count` numbers, a multiple of 16. What is not finite makes the step so.
inline WholeStep whole_parts(const float* numbers, int count, std::int8_t* high, std::int8_t* low) {
    Lanes most = all(0.0f), none = all(0.0f), added = all(0.0f), added_whole = all(0.0f);
    for (int i = 0; i < count; i += LANES) {
        const Lanes own = load(numbers + i);
        most = larger(larger(own, all(0.0f) - own), most);
        none = none + own * all(0.0f);
        added = added + own;
    }
    const float largest_one = largest(most);
    const bool is_finite = sum(none) == 0.0f && largest_one <= 3.0e38f;
    const bool is_there = is_finite && largest_one > LEAST_MOST;
    const Lanes inverse = all(is_there ? MOST_WHOLE / largest_one : 0.0f), bound = all(MOST_WHOLE);
    for (int i = 0; i < count; i += LANES) {
        const Lanes near = is_there ? smaller(larger(rounded(load(numbers + i) * inverse), all(0.0f) - bound), bound) : all(0.0f);
        put_whole_parts(near, high + i, low + i);
        added_whole = added_whole + near;
    }
    if (!is_finite) return {std::nanf(""), 0.0f};
    const float step = is_there ? largest_one / MOST_WHOLE : 0.0f;
    return {step, sum(added) - step * sum(added_whole)};
}

// The sums over `quads` of spread rows of levels times the parts of ROWS rows of whole numbers.
template <int ROWS>
inline void part_sums(const std::uint8_t* levels, int quads, const std::int8_t* const (&parts)[ROWS], Lanes (&found)[ROWS][WHOLE_LANES]) {
    Ints sums[ROWS][WHOLE_LANES];
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = whole(0);
    for (int quad = 0; quad < quads; ++quad, levels += QUAD * BLOCK) {
        Ints own[WHOLE_LANES];
        for (int i = 0; i < WHOLE_LANES; ++i) own[i] = load_whole(levels + i * BLOCK);
        for (int row = 0; row < ROWS; ++row) {
            std::int32_t four;
            std::memcpy(&four, parts[row] + QUAD * quad, sizeof four);
            const Ints value = whole(four);
            for (int i = 0; i < WHOLE_LANES; ++i) sums[row][i] = dot(sums[row][i], own[i], value);
        }
    }
    for (int row = 0; row < ROWS; ++row)
        for (int i = 0; i < WHOLE_LANES; ++i) found[row][i] = floats(sums[row][i]);
}

}  // namespace kakeya
