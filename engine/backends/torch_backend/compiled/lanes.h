// Sixteen float32 lanes, the same operations in the same order on every processor.
//
// What fixes the bits: each operation is IEEE 754's, rounded once; a fused multiply-add is
// asked for by name (the compiler may contract nothing, -ffp-contract=off); sums over lanes
// are one tree, of the lanes i and i + 8, then i + 4, i + 2, i + 1.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define KAKEYA_AVX512 1
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__)
#define KAKEYA_AVX2 1
#include <immintrin.h>
#elif defined(__aarch64__)
#define KAKEYA_NEON 1
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <xmmintrin.h>
#endif

#if !defined(KAKEYA_AVX512)
#define KAKEYA_AVX512 0
#endif
#if !defined(KAKEYA_AVX2)
#define KAKEYA_AVX2 0
#endif

namespace kakeya {

constexpr int LANES = 16;

using bfloat16 = std::uint16_t;

inline float widened(bfloat16 value) {
    const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

// To the nearest, ties to even (IEEE 754); a NaN stays one.
inline bfloat16 narrowed(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bfloat16>((bits >> 16) | 0x40u);
    return static_cast<bfloat16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// A finite float16 number.
inline float half_of(const std::uint8_t* from) {
    std::uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
    // A subnormal one is its fraction in units of 2 ** -24; others are moved to float32's bias.
    const float small = static_cast<float>(fraction) * 5.9604644775390625e-8f;
    std::uint32_t wide = (exponent + 112u) << 23 | fraction << 13;
    if (exponent == 0) std::memcpy(&wide, &small, sizeof wide);
    wide |= sign;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

#if KAKEYA_AVX512

struct Lanes {
    __m512 v;
};

inline Lanes all(float value) { return {_mm512_set1_ps(value)}; }
inline Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline Lanes load(const bfloat16* from) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16))};
}
inline Lanes load_halves(const void* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)))};
}
inline void store(float* to, Lanes a) { _mm512_storeu_ps(to, a.v); }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes larger(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes smaller(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Lanes magnitude(Lanes a) { return {_mm512_abs_ps(a.v)}; }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// To the nearest whole number, ties to even.
inline Lanes rounded(Lanes a) { return {_mm512_roundscale_ps(a.v, 8)}; }
// a * 2 ** n for whole n in -126 .. 127.
inline Lanes scaled(Lanes a, Lanes n) {
    const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
    return {_mm512_mul_ps(a.v, _mm512_castsi512_ps(power))};
}
// `a` in the lanes whose bit is set, `b` in the others.
inline Lanes chosen(std::uint32_t mask, Lanes a, Lanes b) {
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(mask), b.v, a.v)};
}
// Lane i takes lane i ^ half; half is 1, 2, 4 or 8.
inline Lanes swapped(Lanes a, int half) {
    if (half == 1) return {_mm512_permute_ps(a.v, 0xb1)};
    if (half == 2) return {_mm512_permute_ps(a.v, 0x4e)};
    return {half == 4 ? _mm512_shuffle_f32x4(a.v, a.v, 0xb1) : _mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
}

inline float first_of(Lanes a) { return _mm512_cvtss_f32(a.v); }

inline float sum(Lanes a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// sum(a[0]) .. sum(a[15]): the same tree, sixteen at once.
inline Lanes sums(const Lanes (&a)[LANES]) {
    __m512 half[8], quarter[4], eighth[2];
    for (int j = 0; j < 8; ++j) {
        const __m512 x = a[j].v, y = a[j + 8].v;
        half[j] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
    }
    for (int j = 0; j < 4; ++j) {
        const __m512 x = half[j], y = half[j + 4];
        quarter[j] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
    }
    for (int j = 0; j < 2; ++j) {
        const __m512d x = _mm512_castps_pd(quarter[j]), y = _mm512_castps_pd(quarter[j + 2]);
        eighth[j] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
    }
    const __m512 last = _mm512_add_ps(_mm512_shuffle_ps(eighth[0], eighth[1], 0x88), _mm512_shuffle_ps(eighth[0], eighth[1], 0xdd));
    // Element 4 l + e is of a[{0, 2, 1, 3}[e] + {0, 8, 4, 12}[l]].
    const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    return {_mm512_permutexvar_ps(order, last)};
}

// Sixteen whole numbers of 32 bits.
struct Ints {
    __m512i v;
};

inline Ints whole(std::int32_t value) { return {_mm512_set1_epi32(value)}; }
inline Ints load_whole(const void* from) { return {_mm512_loadu_si512(from)}; }
inline Lanes floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// a / 2 ** bits, which is whole.
inline Ints lowered(Ints a, int bits) { return {_mm512_srai_epi32(a.v, bits)}; }
// Whole numbers in -128 .. 127.
inline void store(std::int8_t* to, Lanes a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
inline void store_four(std::int8_t* to, Lanes a, Lanes b, Lanes c, Lanes d) {
    const __m512i first = _mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v));
    const __m512i second = _mm512_packs_epi32(_mm512_cvtps_epi32(c.v), _mm512_cvtps_epi32(d.v));
    // Of each four lanes, the first 32 bits of all of them came first.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(first, second)));
}
inline Ints low_halves(Ints a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(0x0f0f0f0f))}; }
inline Ints low_quarters(Ints a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(0x03030303))}; }
inline Ints high_halves(Ints a) { return low_halves({_mm512_srli_epi32(a.v, 4)}); }
// Byte i of each, i of 0 .. 3, the lowest first.
inline Ints byte_of(Ints a, int i) {
    return {_mm512_and_si512(_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(8 * i)), _mm512_set1_epi32(0xff))};
}
// sum + the products of the bfloat16 numbers in the upper halves, then + those of the lower ones:
// each a fused multiply-add where all that is subnormal is 0 (see `Flushing`).
// Source: VDPBF16PS in Intel's manual for software developers, volume 2.
inline Lanes pair_dot(Lanes sum, Ints weights, Ints inputs) {
#if defined(__AVX512BF16__)
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(weights.v), reinterpret_cast<__m512bh>(inputs.v))};
#else
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    const Lanes own{_mm512_castsi512_ps(_mm512_and_si512(weights.v, upper))}, value{_mm512_castsi512_ps(_mm512_and_si512(inputs.v, upper))};
    sum = fused(own, value, sum);
    return fused({_mm512_castsi512_ps(_mm512_slli_epi32(weights.v, 16))}, {_mm512_castsi512_ps(_mm512_slli_epi32(inputs.v, 16))}, sum);
#endif
}
// a + the four products of bytes of each lane: unsigned ones of `weights`, signed ones of `inputs`.
inline Ints dot(Ints a, Ints weights, Ints inputs) {
#if defined(__AVX512VNNI__)
    return {_mm512_dpbusd_epi32(a.v, weights.v, inputs.v)};
#else
    // By halves of 16 bits, none of which can overflow.
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(weights.v, _mm512_set1_epi32(0x00ff00ff)), _mm512_srai_epi16(_mm512_slli_epi16(inputs.v, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(weights.v, 8), _mm512_srai_epi16(inputs.v, 8));
    return {_mm512_add_epi32(a.v, _mm512_add_epi32(even, odd))};
#endif
}

#elif KAKEYA_AVX2

struct Lanes {
    __m256 a, b;
};

inline Lanes all(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline __m256 eight_of(const bfloat16* from) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}
inline Lanes load(const bfloat16* from) { return {eight_of(from), eight_of(from + 8)}; }
inline Lanes load_halves(const void* from) {
    const __m128i* parts = static_cast<const __m128i*>(from);
    return {_mm256_cvtph_ps(_mm_loadu_si128(parts)), _mm256_cvtph_ps(_mm_loadu_si128(parts + 1))};
}
inline void store(float* to, Lanes x) {
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps(to + 8, x.b);
}
inline Lanes operator+(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Lanes operator-(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Lanes operator*(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Lanes operator/(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Lanes larger(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Lanes smaller(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Lanes fused(Lanes x, Lanes y, Lanes z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline Lanes rounded(Lanes x) { return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
inline __m256 powers(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline Lanes scaled(Lanes x, Lanes n) { return {_mm256_mul_ps(x.a, powers(n.a)), _mm256_mul_ps(x.b, powers(n.b))}; }
inline __m256 blended(std::uint32_t mask, __m256 x, __m256 y) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bits), bits);
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(set));
}
inline Lanes chosen(std::uint32_t mask, Lanes x, Lanes y) { return {blended(mask, x.a, y.a), blended(mask >> 8, x.b, y.b)}; }
inline Lanes swapped(Lanes x, int half) {
    if (half == 1) return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
    if (half == 2) return {_mm256_permute_ps(x.a, 0x4e), _mm256_permute_ps(x.b, 0x4e)};
    if (half == 4) return {_mm256_permute2f128_ps(x.a, x.a, 1), _mm256_permute2f128_ps(x.b, x.b, 1)};
    return {x.b, x.a};
}
inline float sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// sum(a[0]) .. sum(a[7]): the same tree, eight at once.
inline __m256 sums_of_eight(const Lanes* a) {
    __m256 half[8], quarter[4], eighth[2];
    for (int j = 0; j < 8; ++j) half[j] = _mm256_add_ps(a[j].a, a[j].b);
    for (int j = 0; j < 4; ++j) {
        const __m256 x = half[j], y = half[j + 4];
        quarter[j] = _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
    }
    for (int j = 0; j < 2; ++j) {
        const __m256 x = quarter[2 * j], y = quarter[2 * j + 1];
        eighth[j] = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    }
    const __m256 x = eighth[0], y = eighth[1];
    return _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd));
}
inline Lanes sums(const Lanes (&a)[LANES]) { return {sums_of_eight(a), sums_of_eight(a + 8)}; }

struct Ints {
    __m256i a, b;
};

inline Ints whole(std::int32_t value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }
inline Ints load_whole(const void* from) {
    const __m256i* parts = static_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(parts), _mm256_loadu_si256(parts + 1)};
}
inline Lanes floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline Ints lowered(Ints x, int bits) { return {_mm256_srai_epi32(x.a, bits), _mm256_srai_epi32(x.b, bits)}; }
inline Ints low_halves(Ints x) {
    const __m256i low = _mm256_set1_epi32(0x0f0f0f0f);
    return {_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low)};
}
inline Ints high_halves(Ints x) { return low_halves({_mm256_srli_epi32(x.a, 4), _mm256_srli_epi32(x.b, 4)}); }
inline Ints low_quarters(Ints x) {
    const __m256i low = _mm256_set1_epi32(0x03030303);
    return {_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low)};
}
inline Ints byte_of(Ints x, int i) {
    const __m128i by = _mm_cvtsi32_si128(8 * i);
    const __m256i low = _mm256_set1_epi32(0xff);
    return {_mm256_and_si256(_mm256_srl_epi32(x.a, by), low), _mm256_and_si256(_mm256_srl_epi32(x.b, by), low)};
}
inline __m256i dot_of_eight(__m256i x, __m256i weights, __m256i inputs) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, _mm256_set1_epi32(0x00ff00ff)), _mm256_srai_epi16(_mm256_slli_epi16(inputs, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(inputs, 8));
    return _mm256_add_epi32(x, _mm256_add_epi32(even, odd));
}
inline __m256 pairs_of_eight(__m256 x, __m256i weights, __m256i inputs) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    x = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(weights, upper)), _mm256_castsi256_ps(_mm256_and_si256(inputs, upper)), x);
    return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(weights, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(inputs, 16)), x);
}
inline Lanes pair_dot(Lanes x, Ints weights, Ints inputs) {
    return {pairs_of_eight(x.a, weights.a, inputs.a), pairs_of_eight(x.b, weights.b, inputs.b)};
}
inline Ints plus(Ints x, Ints y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
// In halves of 16 bits: sums + two products of bytes each, unsigned ones of `weights`, below 16, and
// signed ones of `inputs`. Eight times two of them are at most 16 * 15 * 128, below 2 ** 15.
inline Ints few_added(Ints sums, Ints weights, Ints inputs) {
    Ints found{_mm256_add_epi16(sums.a, _mm256_maddubs_epi16(weights.a, inputs.a)), _mm256_add_epi16(sums.b, _mm256_maddubs_epi16(weights.b, inputs.b))};
    // In this order: compilers would have all products first, more than there are registers for.
    asm("" : "+x"(found.a), "+x"(found.b));
    return found;
}
// The sum of both halves of each.
inline Ints folded(Ints x) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(x.a, ones), _mm256_madd_epi16(x.b, ones)};
}
// The bfloat16 numbers in the upper and in the lower halves.
inline Lanes upper_of(Ints x) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(x.a, upper)), _mm256_castsi256_ps(_mm256_and_si256(x.b, upper))};
}
inline Lanes lower_of(Ints x) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(x.a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(x.b, 16))};
}
inline Ints dot(Ints x, Ints weights, Ints inputs) {
    return {dot_of_eight(x.a, weights.a, inputs.a), dot_of_eight(x.b, weights.b, inputs.b)};
}
// Unsigned bytes less 128.
inline Ints below_128(Ints x) {
    const __m256i top = _mm256_set1_epi8(static_cast<char>(0x80));
    return {_mm256_xor_si256(x.a, top), _mm256_xor_si256(x.b, top)};
}
// Of signed bytes, as unsigned ones.
inline Ints magnitude(Ints x) { return {_mm256_abs_epi8(x.a), _mm256_abs_epi8(x.b)}; }
// x + the four products of signed bytes of each lane, of which `sizes` are the weights' magnitudes. Inputs are
// in -127 .. 127, so that two products are at most 2 * 128 * 127, below 2 ** 15.
inline Ints signed_dot(Ints x, Ints sizes, Ints weights, Ints inputs) {
    return plus(x, folded({_mm256_maddubs_epi16(sizes.a, _mm256_sign_epi8(inputs.a, weights.a)), _mm256_maddubs_epi16(sizes.b, _mm256_sign_epi8(inputs.b, weights.b))}));
}

#elif KAKEYA_NEON

struct Lanes {
    float32x4_t v[4];
};

template <class Function>
inline Lanes each(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
}
inline Lanes all(float value) { return each([&](int) { return vdupq_n_f32(value); }); }
inline Lanes load(const float* from) { return each([&](int i) { return vld1q_f32(from + 4 * i); }); }
inline Lanes load(const bfloat16* from) {
    return each([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from + 4 * i), 16)); });
}
inline void store(float* to, Lanes x) {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, x.v[i]);
}
inline Lanes operator+(Lanes x, Lanes y) { return each([&](int i) { return vaddq_f32(x.v[i], y.v[i]); }); }
inline Lanes operator-(Lanes x, Lanes y) { return each([&](int i) { return vsubq_f32(x.v[i], y.v[i]); }); }
inline Lanes operator*(Lanes x, Lanes y) { return each([&](int i) { return vmulq_f32(x.v[i], y.v[i]); }); }
inline Lanes operator/(Lanes x, Lanes y) { return each([&](int i) { return vdivq_f32(x.v[i], y.v[i]); }); }
inline Lanes larger(Lanes x, Lanes y) { return each([&](int i) { return vmaxq_f32(x.v[i], y.v[i]); }); }
inline Lanes smaller(Lanes x, Lanes y) { return each([&](int i) { return vminq_f32(x.v[i], y.v[i]); }); }
inline Lanes fused(Lanes x, Lanes y, Lanes z) { return each([&](int i) { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); }); }
inline Lanes rounded(Lanes x) { return each([&](int i) { return vrndnq_f32(x.v[i]); }); }
inline Lanes scaled(Lanes x, Lanes n) {
    return each([&](int i) {
        const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n.v[i]), vdupq_n_s32(127)), 23);
        return vmulq_f32(x.v[i], vreinterpretq_f32_s32(power));
    });
}
inline Lanes chosen(std::uint32_t mask, Lanes x, Lanes y) {
    const std::uint32_t places[4] = {1, 2, 4, 8};
    const uint32x4_t bits = vld1q_u32(places);
    return each([&](int i) { return vbslq_f32(vtstq_u32(vdupq_n_u32(mask >> (4 * i)), bits), x.v[i], y.v[i]); });
}
inline Lanes swapped(Lanes x, int half) {
    if (half == 1) return each([&](int i) { return vrev64q_f32(x.v[i]); });
    if (half == 2) return each([&](int i) { return vextq_f32(x.v[i], x.v[i], 2); });
    return each([&](int i) { return x.v[i ^ (half / 4)]; });
}
inline float sum(Lanes x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

#else

struct Lanes {
    float v[LANES];
};

template <class Function>
inline Lanes each(Function function) {
    Lanes found;
    for (int i = 0; i < LANES; ++i) found.v[i] = function(i);
    return found;
}
inline Lanes all(float value) { return each([&](int) { return value; }); }
inline Lanes load(const float* from) { return each([&](int i) { return from[i]; }); }
inline Lanes load(const bfloat16* from) { return each([&](int i) { return widened(from[i]); }); }
inline void store(float* to, Lanes x) { std::memcpy(to, x.v, sizeof x.v); }
inline Lanes operator+(Lanes x, Lanes y) { return each([&](int i) { return x.v[i] + y.v[i]; }); }
inline Lanes operator-(Lanes x, Lanes y) { return each([&](int i) { return x.v[i] - y.v[i]; }); }
inline Lanes operator*(Lanes x, Lanes y) { return each([&](int i) { return x.v[i] * y.v[i]; }); }
inline Lanes operator/(Lanes x, Lanes y) { return each([&](int i) { return x.v[i] / y.v[i]; }); }
inline Lanes larger(Lanes x, Lanes y) { return each([&](int i) { return x.v[i] > y.v[i] ? x.v[i] : y.v[i]; }); }
inline Lanes smaller(Lanes x, Lanes y) { return each([&](int i) { return x.v[i] < y.v[i] ? x.v[i] : y.v[i]; }); }
inline Lanes fused(Lanes x, Lanes y, Lanes z) { return each([&](int i) { return std::fma(x.v[i], y.v[i], z.v[i]); }); }
inline Lanes rounded(Lanes x) { return each([&](int i) { return std::nearbyint(x.v[i]); }); }
inline Lanes scaled(Lanes x, Lanes n) { return each([&](int i) { return std::ldexp(x.v[i], static_cast<int>(n.v[i])); }); }
inline Lanes chosen(std::uint32_t mask, Lanes x, Lanes y) {
    return each([&](int i) { return mask >> i & 1u ? x.v[i] : y.v[i]; });
}
inline Lanes swapped(Lanes x, int half) { return each([&](int i) { return x.v[i ^ half]; }); }
inline float sum(Lanes x) {
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; ++i) x.v[i] = x.v[i] + x.v[i + step];
    return x.v[0];
}

#endif

#if !KAKEYA_AVX512 && !KAKEYA_AVX2
struct Ints {
    std::int32_t v[LANES];
};

inline Ints whole(std::int32_t value) {
    Ints found;
    for (int i = 0; i < LANES; ++i) found.v[i] = value;
    return found;
}
inline Ints load_whole(const void* from) {
    Ints found;
    std::memcpy(found.v, from, sizeof found.v);
    return found;
}
inline Lanes floats(Ints x) {
    float found[LANES];
    for (int i = 0; i < LANES; ++i) found[i] = static_cast<float>(x.v[i]);
    return load(found);
}
inline Ints lowered(Ints x, int bits) {
    for (int i = 0; i < LANES; ++i) x.v[i] >>= bits;
    return x;
}
inline Ints low_halves(Ints x) {
    for (int i = 0; i < LANES; ++i) x.v[i] &= 0x0f0f0f0f;
    return x;
}
inline Ints low_quarters(Ints x) {
    for (int i = 0; i < LANES; ++i) x.v[i] &= 0x03030303;
    return x;
}
inline Ints high_halves(Ints x) {
    for (int i = 0; i < LANES; ++i) x.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(x.v[i]) >> 4 & 0x0f0f0f0fu);
    return x;
}
inline Ints byte_of(Ints x, int i) {
    for (int k = 0; k < LANES; ++k) x.v[k] = static_cast<std::int32_t>(static_cast<std::uint32_t>(x.v[k]) >> 8 * i & 0xffu);
    return x;
}
inline Ints dot(Ints x, Ints weights, Ints inputs) {
    std::uint8_t own[4 * LANES];
    std::int8_t values[4 * LANES];
    std::memcpy(own, weights.v, sizeof own);
    std::memcpy(values, inputs.v, sizeof values);
    for (int i = 0; i < 4 * LANES; ++i) x.v[i / 4] += own[i] * values[i];
    return x;
}
inline Lanes halves(const Ints& x, bool are_upper) {
    float found[LANES];
    for (int i = 0; i < LANES; ++i) found[i] = widened(static_cast<bfloat16>(static_cast<std::uint32_t>(x.v[i]) >> (are_upper ? 16 : 0)));
    return load(found);
}
inline Lanes pair_dot(Lanes x, Ints weights, Ints inputs) {
    x = fused(halves(weights, true), halves(inputs, true), x);
    return fused(halves(weights, false), halves(inputs, false), x);
}
#endif

// While it lasts, subnormal numbers are 0 in this thread, taken and given: as processors with
// products of pairs have it, whatever the thread does else.
class Flushing {
  public:
#if defined(__SSE2__)
    Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
    ~Flushing() { _mm_setcsr(before_); }

  private:
    unsigned before_;
#elif KAKEYA_NEON
    Flushing() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" : : "r"(before_ | (1ull << 24)));
    }
    ~Flushing() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

  private:
    std::uint64_t before_;
#endif
};

#if !KAKEYA_AVX512 && !KAKEYA_AVX2
// Finite float16 numbers.
inline Lanes load_halves(const void* from) {
    float found[LANES];
    for (int i = 0; i < LANES; ++i) found[i] = half_of(static_cast<const std::uint8_t*>(from) + 2 * i);
    return load(found);
}
inline Lanes sums(const Lanes (&a)[LANES]) {
    float found[LANES];
    for (int i = 0; i < LANES; ++i) found[i] = sum(a[i]);
    return load(found);
}
#endif

#if !KAKEYA_AVX512
inline Lanes magnitude(Lanes x) { return larger(x, all(0.0f) - x); }
inline float first_of(Lanes x) {
    float values[LANES];
    store(values, x);
    return values[0];
}
inline void store(std::int8_t* to, Lanes x) {
    float own[LANES];
    store(own, x);
    for (int i = 0; i < LANES; ++i) to[i] = static_cast<std::int8_t>(own[i]);
}
inline void store_four(std::int8_t* to, Lanes a, Lanes b, Lanes c, Lanes d) {
    store(to, a);
    store(to + LANES, b);
    store(to + 2 * LANES, c);
    store(to + 3 * LANES, d);
}
#endif

// Of what is computed with numbers of a kind: only bfloat16 ones are taken by pairs.
template <class Number>
struct FlushingFor {
    FlushingFor() {}
};
template <>
struct FlushingFor<bfloat16> : Flushing {};

// e ** x to about 1 unit in the last place for x in -87 .. 88; what is outside counts as the border.
// Cody and Waite's reduction, then a polynomial of degree 6 on -ln(2)/2 .. ln(2)/2 (coefficients:
// the Taylor series with its last two moved to the minimax of the interval).
inline Lanes exponential(Lanes x) {
    x = smaller(larger(x, all(-87.0f)), all(88.0f));
    const Lanes n = rounded(x * all(1.44269504088896341f));
    Lanes r = fused(n, all(-0.693359375f), x);
    r = fused(n, all(2.12194440e-4f), r);
    Lanes p = all(1.9875691500e-4f);
    p = fused(p, r, all(1.3981999507e-3f));
    p = fused(p, r, all(8.3334519073e-3f));
    p = fused(p, r, all(4.1665795894e-2f));
    p = fused(p, r, all(1.6666665459e-1f));
    p = fused(p, r, all(5.0000001201e-1f));
    p = fused(p, r * r, r) + all(1.0f);
    return scaled(p, n);
}

// Of numbers; exact in any order.
inline float largest(Lanes x) {
    for (int half = LANES / 2; half > 0; half /= 2) x = larger(x, swapped(x, half));
    return first_of(x);
}

}  // namespace kakeya
