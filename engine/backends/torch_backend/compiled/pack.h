// Tiles of keys or values as a grid packs them (engine/codecs/grid_codec.py): the same bytes.
//
// The same operations in the same order as there, each rounded once: additions of the rotation,
// sums by halves, products, quotients and roots.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "decoder.h"
#include "lanes.h"
#include "unpack.h"

namespace kakeya {

// To the nearest, ties to even (IEEE 754), of a number that is not a NaN.
inline std::uint16_t half_from(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (size >= 0x38800000u) return static_cast<std::uint16_t>(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
    float small;
    std::memcpy(&small, &size, sizeof small);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(small * 16777216.0f)));
}

inline float half_value(std::uint16_t half) {
    std::uint8_t bytes[2];
    std::memcpy(bytes, &half, sizeof bytes);
    return half_of(bytes);
}

enum Refusal : std::int32_t { PACKED = 0, NOT_FINITE = 1, TOO_LARGE = 2 };

// Sums by halves, as engine/codecs/fixed_sums.py has them. `numbers` are overwritten.
inline double folded(double* numbers, int count) {
    while (count > 1) {
        const int half = count / 2;
        for (int i = 0; i < half; ++i) numbers[i] += numbers[i + half];
        if (count % 2) numbers[half] = numbers[2 * half];
        count = half + count % 2;
    }
    return numbers[0];
}

// The same of each column of [rows, columns], into the first row.
inline void folded_rows(double* numbers, int rows, int columns) {
    while (rows > 1) {
        const int half = rows / 2;
        for (int i = 0; i < half * columns; ++i) numbers[i] += numbers[i + half * columns];
        if (rows % 2) std::copy_n(numbers + 2 * half * columns, columns, numbers + half * columns);
        rows = half + rows % 2;
    }
}

// Factors that make a tile's rows and columns alike; see engine/codecs/balance.py. Lines are those
// of the layout: positions of channels, or channels of positions.
class Balance {
  public:
    Balance(int rows, int columns)
        : rows_(rows), columns_(columns), quotient_(rows * columns), squares_(rows * columns), line_(columns), of_rows_(rows), of_columns_(columns) {}

    // The channels' factors change first.
    void find(const float* numbers, bool channels_are_columns, std::vector<float>& of_rows, std::vector<float>& of_columns) {
        std::vector<double> rows(rows_, 1.0), columns(columns_, 1.0), best_rows = rows, best_columns = columns;
        measure(numbers, rows, columns);
        double best = spread();
        for (int turn = 0; turn < TURNS; ++turn) {
            if ((turn % 2 == 0) == channels_are_columns)
                for (int i = 0; i < columns_; ++i) columns[i] = clipped(columns[i] * of_columns_[i]);
            else
                for (int i = 0; i < rows_; ++i) rows[i] = clipped(rows[i] * of_rows_[i]);
            measure(numbers, rows, columns);
            const double found = spread();
            if (found < best) {
                best_rows = rows;
                best_columns = columns;
                best = found;
            }
        }
        of_rows.assign(best_rows.begin(), best_rows.end());
        of_columns.assign(best_columns.begin(), best_columns.end());
    }

  private:
    static constexpr int TURNS = 8;
    static constexpr double LEAST = 1e-3, MOST = 1e3;

    static double clipped(double factor) { return std::min(std::max(factor, LEAST), MOST); }

    // The deviations of the quotient's rows and columns.
    void measure(const float* numbers, const std::vector<double>& rows, const std::vector<double>& columns) {
        for (int row = 0; row < rows_; ++row) {
            double *own = quotient_.data() + row * columns_, *squares = squares_.data() + row * columns_;
            const double factor = rows[row];
            for (int i = 0; i < columns_; ++i) own[i] = static_cast<double>(numbers[row * columns_ + i]) / (factor * columns[i]);
            for (int i = 0; i < columns_; ++i) squares[i] = own[i] * own[i];
            std::copy_n(own, columns_, line_.data());
            const double mean = folded(line_.data(), columns_) / columns_;
            std::copy_n(squares, columns_, line_.data());
            of_rows_[row] = deviation(folded(line_.data(), columns_) / columns_, mean);
        }
        folded_rows(quotient_.data(), rows_, columns_);
        folded_rows(squares_.data(), rows_, columns_);
        for (int i = 0; i < columns_; ++i) of_columns_[i] = deviation(squares_[i] / rows_, quotient_[i] / rows_);
    }

    static double deviation(double of_squares, double mean) { return std::sqrt(std::max(of_squares - mean * mean, LEAST * LEAST)); }

    double spread() const {
        const auto [least_row, most_row] = std::minmax_element(of_rows_.begin(), of_rows_.end());
        const auto [least_column, most_column] = std::minmax_element(of_columns_.begin(), of_columns_.end());
        return std::max(*most_row, *most_column) / std::min(*least_row, *least_column);
    }

    int rows_, columns_;
    std::vector<double> quotient_, squares_, line_, of_rows_, of_columns_;
};

// Memory for one tile at a time, of one thread.
class Packing {
  public:
    explicit Packing(const KakeyaGrid& grid)
        : grid_(grid), rows_(grid.is_by_channel ? grid.head_size : TILE), columns_(grid.is_by_channel ? TILE : grid.head_size),
          rotation_(grid.rotation > 0 ? grid.rotation : 1), balance_(rows_, columns_), numbers_(rows_ * columns_), turned_(rows_ * columns_),
          levels_(rows_ * columns_) {}

    // Positions [64, head_size] as `bytes` of a packed tile.
    template <class Number>
    Refusal pack(const Number* from, std::uint8_t* to) {
        float* numbers = numbers_.data();
        const int count = rows_ * columns_;
        for (int i = 0; i < count; ++i) turned_[i] = as_float(from[i]);
        for (int i = 0; i < count; ++i)
            if (!std::isfinite(turned_[i])) return NOT_FINITE;
        if (grid_.rotation > 0) rotation_.of_columns(turned_.data(), TILE, grid_.head_size);
        if (grid_.is_by_channel)
            put_turned(numbers, turned_.data(), TILE, grid_.head_size);
        else
            std::copy_n(turned_.data(), count, numbers);
        const int grids = count / grid_.group, of_a_row = grids / rows_;
        std::uint8_t *scales = to + count * grid_.bits / 8, *leasts = scales + 2 * grids, *factors = leasts + 2 * grids;
        if (grid_.balances) {
            balance_.find(numbers, !grid_.is_by_channel, across_, along_);
            for (int i = 0; i < columns_; ++i) {
                const std::uint16_t half = half_from(along_[i]);
                std::memcpy(factors + 2 * i, &half, sizeof half);
                along_[i] = half_value(half);
            }
            for (int row = 0; row < rows_; ++row)
                for (int i = 0; i < columns_; ++i) numbers[row * columns_ + i] = numbers[row * columns_ + i] / (along_[i] * across_[row]);
        }
        const float top = static_cast<float>((1 << grid_.bits) - 1);
        for (int grid = 0; grid < grids; ++grid) {
            const float* own = numbers + grid * grid_.group;
            float least = own[0], most = own[0];
            for (int i = 1; i < grid_.group; ++i) {
                least = std::min(least, own[i]);
                most = std::max(most, own[i]);
            }
            // A zero has one sign.
            least += 0.0f;
            most += 0.0f;
            std::uint16_t scale = half_from((most - least) / top), low = half_from(least);
            if (is_infinite(scale) || is_infinite(low)) return TOO_LARGE;
            const float step = half_value(scale), base = half_value(low);
            for (int i = 0; i < grid_.group; ++i) {
                const float level = step > 0.0f ? std::nearbyint((own[i] - base) / step) : 0.0f;
                levels_[grid * grid_.group + i] = static_cast<std::uint8_t>(std::min(std::max(level, 0.0f), top));
            }
            if (grid_.balances) {
                const float factor = across_[grid / of_a_row];
                scale = half_from(step * factor);
                low = half_from(base * factor);
                if (is_infinite(scale) || is_infinite(low)) return TOO_LARGE;
            }
            std::memcpy(scales + 2 * grid, &scale, sizeof scale);
            std::memcpy(leasts + 2 * grid, &low, sizeof low);
        }
        for (int block = 0; block < columns_; block += BLOCK) {
            const int width = std::min(BLOCK, columns_ - block);
            for (int quad = 0; quad < rows_ / QUAD; ++quad) {
                std::uint8_t unit[UNIT];
                for (int i = 0; i < QUAD; ++i)
                    for (int column = 0; column < width; ++column)
                        unit[column * QUAD + i] = levels_[(quad * QUAD + i) * columns_ + block + column];
                gather_some(unit, grid_.bits, QUAD * width, to + unit_at(rows_, columns_, grid_.bits, block, quad));
            }
        }
        return PACKED;
    }

  private:
    static float as_float(float value) { return value; }
    static float as_float(bfloat16 value) { return widened(value); }
    static bool is_infinite(std::uint16_t half) { return (half & 0x7c00u) == 0x7c00u; }

    KakeyaGrid grid_;
    int rows_, columns_;
    Rotation rotation_;
    Balance balance_;
    std::vector<float> numbers_, turned_, across_, along_;
    std::vector<std::uint8_t> levels_;
};

}  // namespace kakeya
