// Rows of a product's inputs as numbers of the weights' kind: whole ones of eight bits, or bfloat16.

#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "decoder.h"
#include "lanes.h"

namespace kakeya {

constexpr int GROUP = 32;
// Whether pairs are multiplied as float32, of inputs that are widened once a row.
constexpr bool WIDENS_PAIRS = KAKEYA_AVX2;
constexpr float PARTS = 254.0f;  // half a one is 127 of them

constexpr float NONE[GROUP] = {};

// Whole numbers in -127 .. 127 as bytes, and their sum.
inline std::int32_t narrowed_to(std::int8_t* to, const float* near) {
    std::int32_t sum = 0;
    for (int i = 0; i < GROUP; ++i) {
        const std::int32_t own = static_cast<std::int32_t>(near[i]);
        to[i] = static_cast<std::int8_t>(own);
        sum += own;
    }
    return sum;
}

// Of rows [rows, count]: the numbers themselves, and, once they are rounded, each 32 of them as
// scale * whole, whole in -127 .. 127, with the sum of the 32 whole ones, and that times the scale.
struct Inputs {
    const float* numbers = nullptr;
    std::int8_t* whole = nullptr;
    float* scales = nullptr;
    std::int32_t* sums = nullptr;
    float* scaled_sums = nullptr;
    bfloat16* narrow = nullptr;
    // Those again, as float32: where each product would have to widen them.
    float* wide = nullptr;
    // What rounding left of each, in whole parts of which one number has 254, and the sums of 32: of fine formats.
    std::int8_t* parts = nullptr;
    std::int32_t* part_sums = nullptr;

    // Has a row ready for a product with weights of the format; it decides by itself what of it
    // is rounded to what.
    [[gnu::noinline]] void round_for(std::int32_t format, std::int64_t row, int count) const {
        const bool is_fine = format == KAKEYA_FINE_INT8 || format == KAKEYA_FINE_INT4;
        if (is_fine || format == KAKEYA_INT8 || format == KAKEYA_INT4 || format == KAKEYA_INT2) round(row, count);
        if (is_fine) round_parts(row, count);
        if (format == KAKEYA_PAIRS)
            for (std::int64_t i = row * count; i < (row + 1) * count; ++i) {
                narrow[i] = narrowed(numbers[i]);
                if constexpr (WIDENS_PAIRS) wide[i] = widened(narrow[i]);
            }
    }

    // Behind `round`.
    void round_parts(std::int64_t row, int count) const {
        const int groups = count / GROUP;
        for (int group = 0; group < groups; ++group) {
            const std::int64_t at = row * count + group * GROUP;
            const float scale = scales[row * groups + group];
            const Lanes inverse = all(scale > 0.0f ? 1.0f / scale : 0.0f);
            float near[GROUP];
            for (int half = 0; half < GROUP; half += LANES) {
                float own[LANES];
                for (int i = 0; i < LANES; ++i) own[i] = static_cast<float>(whole[at + half + i]);
                const Lanes left = (load(numbers + at + half) * inverse - load(own)) * all(PARTS);
                store(near + half, smaller(larger(kakeya::rounded(left), all(-127.0f)), all(127.0f)));
            }
            const std::int32_t sum = narrowed_to(parts + at, scale > 0.0f ? near : NONE);
            part_sums[row * groups + group] = sum;
            scaled_sums[row * groups + group] += scale / PARTS * static_cast<float>(sum);
        }
    }

    // A row's own numbers alone decide what it is rounded to. What is not finite makes the
    // scale so, and with it all that the row is multiplied with.
    void round(std::int64_t row, int count) const {
        const int groups = count / GROUP;
        for (int group = 0; group < groups; ++group) {
            const float* from = numbers + row * count + group * GROUP;
            std::int8_t* to = whole + row * count + group * GROUP;
            const Lanes zero = all(0.0f), low = load(from), high = load(from + LANES);
            const float most = largest(larger(larger(low, zero - low), larger(high, zero - high)));
            const bool is_finite = kakeya::sum(low * zero + high * zero) == 0.0f && most <= 3.0e38f;
            const Lanes inverse = all(most > 0.0f && is_finite ? 127.0f / most : 0.0f);
            float near[GROUP];
            store(near, smaller(larger(kakeya::rounded(low * inverse), all(-127.0f)), all(127.0f)));
            store(near + LANES, smaller(larger(kakeya::rounded(high * inverse), all(-127.0f)), all(127.0f)));
            const std::int32_t sum = narrowed_to(to, is_finite ? near : NONE);
            const float scale = is_finite ? most / 127.0f : std::nanf("");
            scales[row * groups + group] = scale;
            sums[row * groups + group] = sum;
            scaled_sums[row * groups + group] = scale * static_cast<float>(sum);
        }
    }
};

// The memory for rows of up to so many inputs.
class Rounded {
  public:
    Rounded(std::int64_t rows, std::int64_t most) : whole_(rows * most), scales_(rows * most / GROUP), sums_(rows * most / GROUP), scaled_sums_(rows * most / GROUP), narrow_(rows * most), wide_(WIDENS_PAIRS ? rows * most : 0), parts_(rows * most), part_sums_(rows * most / GROUP) {}

    Inputs of(const float* numbers) { return {numbers, whole_.data(), scales_.data(), sums_.data(), scaled_sums_.data(), narrow_.data(), wide_.data(), parts_.data(), part_sums_.data()}; }

  private:
    std::vector<std::int8_t> whole_;
    std::vector<float> scales_;
    std::vector<std::int32_t> sums_;
    std::vector<float> scaled_sums_;
    std::vector<bfloat16> narrow_;
    std::vector<float> wide_;
    std::vector<std::int8_t> parts_;
    std::vector<std::int32_t> part_sums_;
};

}  // namespace kakeya
