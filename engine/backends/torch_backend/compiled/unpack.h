// Tiles of keys or values that a grid packed (engine/codecs/grid_codec.py), as numbers again.
//
// The same operations in the same order as there, each rounded once: level * scale + least, times
// the factors, the rotation's additions by rising distance, times 1 / root of its size. So the
// numbers are those of `GridCodec.decode`, bit for bit, and their bfloat16 the nearest.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "decoder.h"
#include "lanes.h"
#include "levels.h"

namespace kakeya {

constexpr int TILE = 64;

// Sums and differences of lanes that are `half` apart; half is 1, 2, 4 or 8.
inline Lanes butterflied(Lanes a, int half) {
    constexpr std::uint32_t UPPER[] = {0, 0xaaaau, 0xccccu, 0, 0xf0f0u, 0, 0, 0, 0xff00u};
    const Lanes other = swapped(a, half);
    return chosen(UPPER[half], other - a, a + other);
}

// The fast Walsh-Hadamard transform, of numbers [rows, columns]: of each `block` rows or of each
// `block` columns, a power of two and 8 at least. The additions of a number are those of rising
// distance, however many of them are made while it is in a register.
class Rotation {
  public:
    explicit Rotation(int block) : block_(block), scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)))) {}

    void of_rows(float* numbers, int rows, int columns) const {
        for (int row = 0; row < rows; row += block_)
            for (int column = 0; column < columns; column += LANES) lanes_apart(numbers + row * columns + column, block_, columns);
    }

    void of_columns(float* numbers, int rows, int columns) const {
        const int within = block_ < LANES ? block_ : LANES;
        const bool is_all = within == block_;
        for (int i = 0; i < rows * columns; i += LANES) {
            Lanes own = load(numbers + i);
            for (int half = 1; half < within; half *= 2) own = butterflied(own, half);
            store(numbers + i, is_all ? own * all(scale_) : own);
        }
        if (is_all) return;
        for (int i = 0; i < rows * columns; i += block_) lanes_apart(numbers + i, block_ / LANES, LANES);
    }

  private:
    // `count` lanes, each `stride` numbers behind the one before; scaled in the end.
    void lanes_apart(float* numbers, int count, int stride) const {
        int half = 1;
        for (; 8 * half <= count; half *= 8) passes<8>(numbers, count, stride, half);
        if (4 * half <= count) {
            passes<4>(numbers, count, stride, half);
            half *= 4;
        }
        if (2 * half <= count) passes<2>(numbers, count, stride, half);
    }

    // As many distances from `half` on as two has to be multiplied with itself to be WIDTH.
    template <int WIDTH>
    void passes(float* numbers, int count, int stride, int half) const {
        const Lanes factor = all(WIDTH * half == count ? scale_ : 1.0f);
        for (int first = 0; first < count; first += WIDTH * half)
            for (int i = first; i < first + half; ++i) {
                Lanes own[WIDTH];
                for (int k = 0; k < WIDTH; ++k) own[k] = load(numbers + (i + k * half) * stride);
                for (int apart = 1; apart < WIDTH; apart *= 2)
                    for (int k = 0; k < WIDTH; ++k)
                        if (!(k & apart)) {
                            const Lanes a = own[k], b = own[k + apart];
                            own[k] = a + b;
                            own[k + apart] = a - b;
                        }
                for (int k = 0; k < WIDTH; ++k) store(numbers + (i + k * half) * stride, own[k] * factor);
            }
    }

    int block_;
    float scale_;
};

inline void put(float* to, const float* from, int count) { std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof *to); }
inline void put(bfloat16* to, const float* from, int count) {
    for (int i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, from + i, sizeof bits);
        to[i] = static_cast<bfloat16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
}

// Numbers [rows, columns] as [columns, rows].
template <class Number>
void put_turned(Number* to, const Number* from, int rows, int columns) {
    constexpr int STEP = 8;
    for (int row = 0; row < rows; row += STEP)
        for (int column = 0; column < columns; column += STEP)
            for (int i = 0; i < STEP; ++i)
                for (int j = 0; j < STEP; ++j) to[(column + i) * rows + row + j] = from[(row + j) * columns + column + i];
}

// Memory for one tile at a time, of one thread.
class Unpacking {
  public:
    explicit Unpacking(const KakeyaGrid& grid)
        : grid_(grid), rotation_(grid.rotation > 0 ? grid.rotation : 1), numbers_(TILE * grid.head_size), narrow_(TILE * grid.head_size),
          halves_(2 * TILE * grid.head_size / grid.group + factor_count(grid)) {}

    template <class Number>
    void unpack(const std::uint8_t* packed, Number* to) {
        const int head_size = grid_.head_size, grids = TILE * head_size / grid_.group;
        const std::uint8_t* halves = packed + static_cast<std::int64_t>(TILE) * head_size * grid_.bits / 8;
        for (std::size_t i = 0; i < halves_.size(); i += LANES) store(halves_.data() + i, load_halves(halves + 2 * i));
        const float *scales = halves_.data(), *leasts = scales + grids, *factors = leasts + grids;
        float* numbers = numbers_.data();
        // By channel a row of 64 positions, or by position a row of channels.
        const int columns = grid_.is_by_channel ? TILE : head_size, rows = TILE * head_size / columns;
        for (int block = 0; block < columns; block += BLOCK) {
            const int width = std::min(BLOCK, columns - block);
            for (int quad = 0; quad < rows / QUAD; ++quad) {
                alignas(64) std::uint8_t levels[UNIT];
                spread_unit(packed + unit_at(rows, columns, grid_.bits, block, quad), grid_.bits, width, levels);
                for (int i = 0; i < QUAD; ++i)
                    for (int column = 0; column < width; column += LANES) {
                        const Lanes own = floats(byte_of(load_whole(levels + column * QUAD), i));
                        const std::int64_t first = static_cast<std::int64_t>(quad * QUAD + i) * columns + block + column;
                        const std::int64_t group = first / grid_.group;
                        Lanes found = own * all(scales[group]) + all(leasts[group]);
                        if (grid_.balances) found = found * load(factors + block + column);
                        store(numbers + first, found);
                    }
            }
        }
        if (grid_.rotation > 0) {
            if (grid_.is_by_channel)
                rotation_.of_rows(numbers, rows, columns);
            else
                rotation_.of_columns(numbers, rows, columns);
        }
        if (!grid_.is_by_channel) {
            put(to, numbers, TILE * head_size);
            return;
        }
        Number* narrow = reinterpret_cast<Number*>(narrow_.data());
        put(narrow, numbers, TILE * head_size);
        put_turned(to, narrow, rows, columns);
    }

  private:
    static int factor_count(const KakeyaGrid& grid) {
        if (!grid.balances) return 0;
        return grid.is_by_channel ? TILE : grid.head_size;
    }

    KakeyaGrid grid_;
    Rotation rotation_;
    std::vector<float> numbers_, narrow_, halves_;
};

}  // namespace kakeya
