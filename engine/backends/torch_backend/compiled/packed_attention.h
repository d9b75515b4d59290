// Attention of a block of rows to packed tiles, without the numbers that they stand for.
//
// Of keys by channel, key p is factor[p] * (level * scale + least) in each channel, rotated: so a
// query, rotated once and multiplied by the scales, meets the levels themselves. Values by position
// likewise, with weights in the query's place, and their sum is rotated back. What meets levels is
// rounded to whole numbers of eight bits, tile by tile; see levels.h. A row's bits are a function of the row, its
// position and the tiles, whatever rows stand beside it, and on every processor.

#pragma once

#include "ahead.h"
#include "attention.h"
#include "levels.h"
#include "unpack.h"

namespace kakeya {

constexpr int MOST_HEAD = 512;
constexpr int ROWS_AT_ONCE = 4;

// One tile as it meets rows of weights: `count` rows of levels, which are added up, of `columns`.
class PackedTile {
  public:
    // For products of so many rows. Of few each level is used once: it goes nowhere between.
    void open(const KakeyaGrid& grid, const std::uint8_t* packed, int rows) {
        count_ = grid.is_by_channel ? grid.head_size : TILE;
        columns_ = grid.is_by_channel ? TILE : grid.head_size;
        group_ = grid.group;
        groups_ = columns_ / group_;
        middle_ = 0.5f * static_cast<float>((1 << grid.bits) - 1);
        packed_ = packed;
        bits_ = grid.bits;
        is_spread_ = !(KAKEYA_AVX512 && rows <= ROWS_AT_ONCE && columns_ % BLOCK == 0 && bits_ >= 2 && bits_ <= 4);
        for (int block = 0; is_spread_ && block < columns_; block += BLOCK)
            for (int quad = 0; quad < count_ / QUAD; ++quad)
                spread_unit(packed + unit_at(count_, columns_, grid.bits, block, quad), grid.bits, std::min(BLOCK, columns_ - block),
                            levels_of(block) + quad * UNIT);
        const std::uint8_t* halves = packed + static_cast<std::int64_t>(TILE) * grid.head_size * grid.bits / 8;
        const int numbers = groups_ * count_;
        scales_ = turned(halves, turned_scales_);
        leasts_ = turned(halves + HALF * numbers, turned_leasts_);
        factors_ = grid.balances ? halves + 2 * HALF * numbers : nullptr;
    }

    // Of each of ROWS rows of weights [count] the sums [columns]: to what `to` has, if they `is_added`.
    template <int ROWS>
    void products(const float* const (&weights)[ROWS], float* const (&to)[ROWS], bool is_added) {
        for (int group = 0; group < groups_; ++group) {
            float steps[ROWS], bases[ROWS];
            if (count_ == TILE)
                round_rows<ROWS, TILE>(group, weights, steps, bases);
            else if (count_ == 2 * TILE)
                round_rows<ROWS, 2 * TILE>(group, weights, steps, bases);
            else
                round_rows<ROWS, 0>(group, weights, steps, bases);
            const int first = group * group_, end = first + group_;
            for (int block = first / BLOCK * BLOCK; block < end; block += BLOCK)
                block_products<ROWS>(block, first, end, steps, bases, to, is_added);
        }
    }

  private:
    static constexpr int HALF = 2;  // bytes of a coefficient

    // Has the rows as whole numbers of `steps`; `bases` are to be added to what their sums with the levels stand for.
    // COUNT is `count_`, or 0 where it is no usual one.
    template <int ROWS, int COUNT>
    void round_rows(int group, const float* const (&weights)[ROWS], float (&steps)[ROWS], float (&bases)[ROWS]) {
        const int count = COUNT ? COUNT : count_;
        const std::uint8_t *scales = scales_ + HALF * group * count, *leasts = leasts_ + HALF * group * count;
        Lanes numbers[ROWS][(COUNT ? COUNT : MOST_HEAD) / LANES];
        // Of each row what is to be added up: what is multiplied with leasts, with levels, and its whole numbers.
        Lanes with_leasts[ROWS], with_levels[ROWS], whole[ROWS];
        for (int row = 0; row < ROWS; ++row) with_leasts[row] = all(0.0f);
        for (int i = 0; i < count; i += LANES) {
            const Lanes scale = load_halves(scales + HALF * i), least = load_halves(leasts + HALF * i);
            for (int row = 0; row < ROWS; ++row) {
                const Lanes own = load(weights[row] + i);
                numbers[row][i / LANES] = own * scale;
                with_leasts[row] = fused(own, least, with_leasts[row]);
            }
        }
        for (int row = 0; row < ROWS; ++row) {
            const Rounded8 rounded = round_whole<COUNT>(numbers[row], count, whole_[row]);
            steps[row] = rounded.step;
            with_levels[row] = rounded.added;
            whole[row] = rounded.whole;
        }
        float found[LANES];
        // Each of ROWS rows, and any in the place of those that are not there.
        constexpr int SECOND = ROWS > 1 ? 1 : 0, THIRD = ROWS > 2 ? 2 : 0, FOURTH = ROWS > 3 ? 3 : 0;
        const Lanes added[LANES] = {with_leasts[0], with_leasts[SECOND], with_leasts[THIRD], with_leasts[FOURTH],
                                    with_levels[0], with_levels[SECOND], with_levels[THIRD], with_levels[FOURTH],
                                    whole[0], whole[SECOND], whole[THIRD], whole[FOURTH],
                                    whole[0], whole[SECOND], whole[THIRD], whole[FOURTH]};
        store(found, sums(added));
        for (int row = 0; row < ROWS; ++row) {
            // What is lost is made good as of the middle level; what is not finite makes all so.
            const float lost = found[ROWS_AT_ONCE + row] - steps[row] * found[2 * ROWS_AT_ONCE + row];
            bases[row] = std::fma(middle_, lost, found[row]);
        }
    }

    template <int ROWS>
    void block_products(int block, int first, int end, const float (&steps)[ROWS], const float (&bases)[ROWS], float* const (&to)[ROWS], bool is_added) {
        Lanes sums[ROWS][WHOLE_LANES];
        const std::int8_t* rows[ROWS];
        for (int row = 0; row < ROWS; ++row) rows[row] = whole_[row];
        read_sums<ROWS>(block, rows, sums);
        for (int i = 0; i < WHOLE_LANES; ++i) {
            const int column = block + i * LANES;
            if (column < first || column >= end) continue;
            const Lanes factor = factors_ ? load_halves(factors_ + HALF * column) : all(1.0f);
            for (int row = 0; row < ROWS; ++row) {
                Lanes found = fused(sums[row][i], all(steps[row]), all(bases[row]));
                if (factors_) found = found * factor;
                store(to[row] + column, is_added ? load(to[row] + column) + found : found);
            }
        }
    }

    template <int ROWS>
    void read_sums(int block, const std::int8_t* const (&rows)[ROWS], Lanes (&sums)[ROWS][WHOLE_LANES]) {
        const int quads = count_ / QUAD;
        if (is_spread_) return whole_sums<ROWS>(SpreadUnits{levels_of(block)}, quads, rows, sums);
#if KAKEYA_AVX512
        const std::uint8_t* units = packed_ + unit_at(count_, columns_, bits_, block, 0);
        switch (bits_) {
            case 2: return whole_sums<ROWS>(PackedUnits<2>{units}, quads, rows, sums);
            case 3: return whole_sums<ROWS>(PackedUnits<3>{units}, quads, rows, sums);
            case 4: return whole_sums<ROWS>(PackedUnits<4>{units}, quads, rows, sums);
        }
#endif
    }

    std::uint8_t* levels_of(int block) { return levels_ + block * count_; }

    // Halves [count, groups] as [groups, count], in `to` if they are not so already.
    const std::uint8_t* turned(const std::uint8_t* halves, std::uint8_t* to) const {
        if (groups_ == 1) return halves;
        for (int group = 0; group < groups_; ++group)
            for (int i = 0; i < count_; ++i) std::memcpy(to + HALF * (group * count_ + i), halves + HALF * (i * groups_ + group), HALF);
        return to;
    }

    int count_ = 0, columns_ = 0, group_ = 0, groups_ = 0;
    int bits_ = 0;
    bool is_spread_ = true;
    const std::uint8_t *packed_ = nullptr, *scales_ = nullptr, *leasts_ = nullptr, *factors_ = nullptr;
    float middle_ = 0.0f;
    alignas(64) std::uint8_t levels_[TILE * MOST_HEAD];
    // Groups are of 16 numbers at least.
    std::uint8_t turned_scales_[HALF * TILE * MOST_HEAD / LANES], turned_leasts_[HALF * TILE * MOST_HEAD / LANES];
    alignas(64) std::int8_t whole_[ROWS_AT_ONCE][MOST_HEAD];
};

// What one thread needs besides `Scratch`.
struct PackedScratch {
    PackedTile tile;
    float queries[BLOCK_ROWS][MOST_HEAD];  // rotated
};

// The products of a tile with `count` rows of weights, some at once.
inline void rows_products(PackedTile& tile, int count, const float* const (&weights)[BLOCK_ROWS], float* const (&to)[BLOCK_ROWS], bool is_added) {
    int row = 0;
    const auto some = [&]<int ROWS>() {
        const float* own[ROWS];
        float* found[ROWS];
        for (int i = 0; i < ROWS; ++i) {
            own[i] = weights[row + i];
            found[i] = to[row + i];
        }
        tile.products<ROWS>(own, found, is_added);
        row += ROWS;
    };
    while (count - row >= ROWS_AT_ONCE) some.template operator()<ROWS_AT_ONCE>();
    switch (count - row) {
        case 3: some.template operator()<3>(); break;
        case 2: some.template operator()<2>(); break;
        case 1: some.template operator()<1>(); break;
    }
}

// Has the rows' queries as the keys of all segments are packed.
inline void rotate_queries(const KakeyaPacked& packed, const Rows& rows, PackedScratch& scratch) {
    const int head_size = packed.keys.head_size;
    for (int row = 0; row < rows.count; ++row) {
        std::memcpy(scratch.queries[row], rows.query[row], sizeof(float) * head_size);
        if (packed.keys.rotation) Rotation(packed.keys.rotation).of_columns(scratch.queries[row], 1, head_size);
    }
}

// `tiles` are one K/V head's; the queries are rotated.
inline void attend_packed_segment(const KakeyaPacked& packed, const std::uint8_t* tiles, int slots, std::int64_t origin,
                                  float scaling, Rows& rows, Scratch& scratch, PackedScratch& more) {
    const int head_size = packed.keys.head_size;
    const SegmentPart part(rows, origin, slots, TILE);
    if (!part.is_seen()) return;
    const Lanes none = all(-INFINITY), scale = all(scaling);
    const float* read[BLOCK_ROWS];
    float* found[BLOCK_ROWS];
    const std::int64_t value_bytes = packed.tile_bytes - packed.key_bytes;
    for (int slot = part.begin; slot < part.stop; slot += TILE) {
        const std::uint8_t* tile = tiles + slot / TILE * packed.tile_bytes;
        if (slot + TILE < part.stop)
            ask_all(tile + packed.tile_bytes, packed.key_bytes);
        else
            ask_all(tiles + part.begin / TILE * packed.tile_bytes + packed.key_bytes, value_bytes);
        more.tile.open(packed.keys, tile, rows.count);
        for (int row = 0; row < rows.count; ++row) {
            read[row] = more.queries[row];
            found[row] = scratch.weights[row] + slot;
        }
        rows_products(more.tile, rows.count, read, found, false);
        for (int row = 0; row < rows.count; ++row)
            for (int i = 0; i < TILE; i += LANES) {
                const Lanes score = load(found[row] + i) * scale;
                store(found[row] + i, part.sees_all[row] ? score : chosen(seen_lanes(rows.seen[row], origin + slot + i), score, none));
            }
    }
    float totals[BLOCK_ROWS], maxima[BLOCK_ROWS];
    for (int row = 0; row < rows.count; ++row) {
        if (part.sees[row])
            totals[row] = weigh(scratch.weights[row], rows, row, part, origin, &maxima[row]);
        else
            std::fill(scratch.weights[row] + part.begin, scratch.weights[row] + part.stop, 0.0f);
        std::fill(scratch.values[row], scratch.values[row] + head_size, 0.0f);
    }
    for (int slot = part.begin; slot < part.stop; slot += TILE) {
        const std::uint8_t* tile = tiles + slot / TILE * packed.tile_bytes + packed.key_bytes;
        if (slot + TILE < part.stop) ask_all(tile + packed.tile_bytes, value_bytes);
        more.tile.open(packed.values, tile, rows.count);
        for (int row = 0; row < rows.count; ++row) {
            read[row] = scratch.weights[row] + slot;
            found[row] = scratch.values[row];
        }
        rows_products(more.tile, rows.count, read, found, true);
    }
    for (int row = 0; row < rows.count; ++row) {
        if (!part.sees[row]) continue;
        if (packed.values.rotation) Rotation(packed.values.rotation).of_columns(scratch.values[row], 1, head_size);
        merge(rows, row, head_size, totals[row], maxima[row], scratch.values[row]);
    }
}

// To `segments` of them from `first` on, whose tiles are of layers [layers, kv_heads, tiles].
inline void attend_packed(const KakeyaPacked& packed, int first, int segments, int place, int kv_heads, int kv_head, float scaling,
                          Rows& rows, Scratch& scratch, PackedScratch& more) {
    rotate_queries(packed, rows, more);
    std::int64_t origin = 0;
    for (int i = 0; i < first; ++i) origin += packed.segments[i].slots;
    for (int i = first; i < first + segments; ++i) {
        const KakeyaSegment& segment = packed.segments[i];
        const std::int64_t tiles = segment.slots / TILE;
        const std::uint8_t* own = static_cast<const std::uint8_t*>(segment.numbers) + (static_cast<std::int64_t>(place) * kv_heads + kv_head) * tiles * packed.tile_bytes;
        attend_packed_segment(packed, own, segment.slots, origin, scaling, rows, scratch, more);
        origin += segment.slots;
    }
}

}  // namespace kakeya
