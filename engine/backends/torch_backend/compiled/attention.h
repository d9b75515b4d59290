// Attention of a block of rows to the slots of one cache, in the order of the slots.
//
// What fixes the bits of a row's output, whatever block it came in:
//
// - A score is a sum over the head in a fixed tree, and of one slot alone. Of bfloat16 keys it is
//   of pairs, and the query is rounded to bfloat16.
// - A segment's maximum is exact in any order, its weights are added in sixteen lanes by the
//   slot's place and then in a tree; a slot that is not seen adds exactly 0.
// - Weighted values are added slot by slot, ascending.
// - Segments are merged in ascending order by log-sum-exp (Milakov and Gimelshein, "Online
//   normalizer calculation for softmax", 2018); one of which nothing is seen is passed over.
//
// Where segments begin, and which slot has which position, are rules about positions.

#pragma once

#include <algorithm>
#include <type_traits>

#include "ahead.h"
#include "decoder.h"
#include "lanes.h"

namespace kakeya {

constexpr int MOST_SLOTS = 1024;   // of a segment: scores of a row that are in memory at once
constexpr int BLOCK_ROWS = 8;      // rows that read a segment together
constexpr int SHARED_ROWS = 4;     // rows whose weighted values are added up in registers
constexpr int MOST_SPANS = 3;
constexpr int SLOTS_AHEAD = 4096;  // bytes

struct Span {
    std::int64_t first, end;
};

// The slots that a query sees, ascending and apart.
struct Seen {
    Span spans[MOST_SPANS];
    int count = 0;

    void add(std::int64_t first, std::int64_t end) {
        if (first < end) spans[count++] = {first, end};
    }
};

// The positions below this have left the window of a query.
inline std::int64_t evicted_end(const KakeyaStore& store, std::int64_t query) {
    return std::max<std::int64_t>(0, query - store.window + 1) / store.tile * store.tile;
}

inline Seen seen_by(const KakeyaStore& store, std::int64_t query) {
    Seen seen;
    const std::int64_t nearest = store.reach > 0 ? query - store.reach + 1 : 0;
    if (store.ring == 0) {
        seen.add(std::max<std::int64_t>(0, nearest - store.origin), query + 1 - store.origin);
        return seen;
    }
    seen.add(std::max<std::int64_t>(0, nearest), std::min(store.sink, query + 1));
    const std::int64_t oldest = std::max({store.sink, evicted_end(store, query), nearest});
    if (oldest > query) return seen;
    const std::int64_t from = store.sink + (oldest - store.sink) % store.ring;
    const std::int64_t to = store.sink + (query - store.sink) % store.ring;
    if (from <= to) {
        seen.add(from, to + 1);
    } else {
        seen.add(store.sink, to + 1);
        seen.add(from, store.sink + store.ring);
    }
    return seen;
}

// Bits of the sixteen slots from `first` on that are seen.
inline std::uint32_t seen_lanes(const Seen& seen, std::int64_t first) {
    std::uint32_t mask = 0;
    for (int i = 0; i < seen.count; ++i) {
        const std::int64_t from = std::max(seen.spans[i].first - first, std::int64_t{0});
        const std::int64_t end = std::min(seen.spans[i].end - first, std::int64_t{LANES});
        if (from < end) mask |= ((1u << end) - 1u) & ~((1u << from) - 1u);
    }
    return mask;
}

// Whether all of these slots are seen, by one span.
inline bool is_covered(const Seen& seen, std::int64_t first, std::int64_t end) {
    for (int i = 0; i < seen.count; ++i)
        if (seen.spans[i].first <= first && end <= seen.spans[i].end) return true;
    return false;
}

// Where a block's rows are: row r has the query, its place in the outputs, and its position.
struct Rows {
    int count = 0;
    const float* query[BLOCK_ROWS];
    float* mixed[BLOCK_ROWS];
    float* total[BLOCK_ROWS];
    float* maximum[BLOCK_ROWS];
    Seen seen[BLOCK_ROWS];
    bool begun[BLOCK_ROWS];
};

struct Scratch {
    alignas(64) float weights[BLOCK_ROWS][MOST_SLOTS];
    alignas(64) float values[BLOCK_ROWS][512];
    alignas(64) bfloat16 queries[BLOCK_ROWS][512];  // those of the rows, rounded
    alignas(64) float spread[BLOCK_ROWS][512];      // those again, as keys are spread
};

#if KAKEYA_AVX2
// Numbers as float32 in the order in which their products are added up: of bfloat16 ones the upper halves of pairs,
// and then the lower ones.
template <int WIDE>
inline void spread(const float* numbers, Lanes (&to)[WIDE]) {
    for (int i = 0; i < WIDE; ++i) to[i] = load(numbers + i * LANES);
}
template <int WIDE>
inline void spread(const bfloat16* numbers, Lanes (&to)[WIDE]) {
    for (int i = 0; i < WIDE; i += 2) {
        const Ints own = load_whole(numbers + i * LANES);
        to[i] = upper_of(own);
        to[i + 1] = lower_of(own);
    }
}

// The rows' queries as their products with keys take them.
inline void spread_queries(const Rows& rows, int head_size, Scratch& scratch, const float*) {
    for (int row = 0; row < rows.count; ++row) std::memcpy(scratch.spread[row], rows.query[row], sizeof(float) * head_size);
}
inline void spread_queries(const Rows& rows, int head_size, Scratch& scratch, const bfloat16*) {
    for (int row = 0; row < rows.count; ++row)
        for (int d = 0; d < head_size; d += 2 * LANES) {
            Lanes own[2];
            spread(scratch.queries[row] + d, own);
            store(scratch.spread[row] + d, own[0]);
            store(scratch.spread[row] + d + LANES, own[1]);
        }
}

inline Lanes begun_with(Lanes key, Lanes query, const float*) { return query * key; }
inline Lanes begun_with(Lanes key, Lanes query, const bfloat16*) { return fused(key, query, all(0.0f)); }

// The products of the rows' queries with the keys of sixteen slots, to be added up over the lanes: each key is
// spread once for all rows.
template <int SIZE, class Number>
inline void products_of_sixteen(const Number* keys, int own_size, const Rows& rows, const Scratch& scratch, Lanes (&products)[BLOCK_ROWS][LANES]) {
    const int head_size = SIZE ? SIZE : own_size;
    constexpr int WIDE = SIZE ? 4 : 2;
    for (int lane = 0; lane < LANES; ++lane, keys += head_size)
        for (int d = 0; d < head_size; d += WIDE * LANES) {
            Lanes key[WIDE];
            spread(keys + d, key);
            for (int row = 0; row < rows.count; ++row) {
                const float* query = scratch.spread[row] + d;
                Lanes added = d ? fused(key[0], load(query), products[row][lane]) : begun_with(key[0], load(query), keys);
                for (int i = 1; i < WIDE; ++i) added = fused(key[i], load(query + i * LANES), added);
                products[row][lane] = added;
            }
        }
}
#else
inline void spread_queries(const Rows&, int, Scratch&, const float*) {}
inline void spread_queries(const Rows&, int, Scratch&, const bfloat16*) {}

inline const float* query_of(const Rows& rows, const Scratch&, int row, const float*) { return rows.query[row]; }
inline const bfloat16* query_of(const Rows&, const Scratch& scratch, int row, const bfloat16*) { return scratch.queries[row]; }

// A query's products with a key.
inline Lanes products_of(const float* query, const float* key, int head_size) {
    Lanes added = load(query) * load(key);
    for (int d = LANES; d < head_size; d += LANES) added = fused(load(query + d), load(key + d), added);
    return added;
}
inline Lanes products_of(const bfloat16* query, const bfloat16* key, int head_size) {
    Lanes added = all(0.0f);
    for (int d = 0; d < head_size; d += 2 * LANES) added = pair_dot(added, load_whole(key + d), load_whole(query + d));
    return added;
}

template <int SIZE, class Number>
inline void products_of_sixteen(const Number* keys, int own_size, const Rows& rows, const Scratch& scratch, Lanes (&products)[BLOCK_ROWS][LANES]) {
    const int head_size = SIZE ? SIZE : own_size;
    for (int row = 0; row < rows.count; ++row) {
        const Number* query = query_of(rows, scratch, row, keys);
        for (int lane = 0; lane < LANES; ++lane) products[row][lane] = products_of(query, keys + lane * head_size, head_size);
    }
}
#endif

// Of a key or a value so many bytes behind this one.
template <class Number>
inline void ask_ahead(const Number* own, int head_size) {
    for (int d = 0; d < head_size; d += LINE / sizeof(Number)) ask(reinterpret_cast<const char*>(own + d) + SLOTS_AHEAD);
}

constexpr std::uint32_t ALL_LANES = (1u << LANES) - 1u;

// The weighted values of WIDE vectors of the head from d on.
template <int ROWS, int WIDE, class Number>
inline void add_some_values(const Number* values, int head_size, const Scratch& scratch, int row, int first, int end,
                            int d, float (*found)[512]) {
    Lanes added[ROWS][WIDE];
    for (int r = 0; r < ROWS; ++r)
        for (int lane = 0; lane < WIDE; ++lane) added[r][lane] = all(0.0f);
    const Number* own = values + static_cast<std::int64_t>(first) * head_size + d;
    for (int slot = first; slot < end; ++slot, own += head_size) {
        if (d == 0) ask_ahead(own, head_size);
        Lanes value[WIDE];
        for (int lane = 0; lane < WIDE; ++lane) value[lane] = load(own + lane * LANES);
        for (int r = 0; r < ROWS; ++r) {
            const Lanes weight = all(scratch.weights[row + r][slot]);
            for (int lane = 0; lane < WIDE; ++lane) added[r][lane] = fused(weight, value[lane], added[r][lane]);
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int lane = 0; lane < WIDE; ++lane) store(found[row + r] + d + lane * LANES, added[r][lane]);
}

// Of ROWS rows together: each value is read once for all of them.
template <int ROWS, class Number>
inline void add_values(const Number* values, int head_size, const Scratch& scratch, int row, int first, int end,
                       float (*found)[512]) {
    int d = 0;
#if KAKEYA_AVX512 || KAKEYA_NEON
    for (; head_size - d >= 4 * LANES; d += 4 * LANES)
        add_some_values<ROWS, 4>(values, head_size, scratch, row, first, end, d, found);
#endif
    for (; d < head_size; d += 2 * LANES)
        add_some_values<ROWS, 2>(values, head_size, scratch, row, first, end, d, found);
}

template <class Number>
inline void add_values_of(const Number* values, int head_size, const Scratch& scratch, int rows, int first, int end,
                          float (*found)[512]) {
    int row = 0;
    for (; rows - row >= SHARED_ROWS; row += SHARED_ROWS)
        add_values<SHARED_ROWS>(values, head_size, scratch, row, first, end, found);
    switch (rows - row) {
        case 3: add_values<3>(values, head_size, scratch, row, first, end, found); break;
        case 2: add_values<2>(values, head_size, scratch, row, first, end, found); break;
        case 1: add_values<1>(values, head_size, scratch, row, first, end, found); break;
    }
}

// Merges what a row found in one segment into what it found before.
inline void merge(Rows& rows, int row, int head_size, float total, float maximum, const float* values) {
    float* mixed = rows.mixed[row];
    if (!rows.begun[row]) {
        rows.begun[row] = true;
        *rows.total[row] = total;
        *rows.maximum[row] = maximum;
        std::memcpy(mixed, values, sizeof(float) * head_size);
        return;
    }
    const float highest = std::max(*rows.maximum[row], maximum);
    const Lanes factors = exponential(chosen(1u, all(*rows.maximum[row] - highest), all(maximum - highest)));
    float both[LANES];
    store(both, factors);
    *rows.total[row] = std::fma(total, both[1], *rows.total[row] * both[0]);
    *rows.maximum[row] = highest;
    const Lanes before = all(both[0]), after = all(both[1]);
    for (int d = 0; d < head_size; d += LANES)
        store(mixed + d, fused(load(values + d), after, load(mixed + d) * before));
}

// What rows see of a segment whose first slot is `origin`.
struct SegmentPart {
    int begin, stop;  // from the first to the last slot that any row sees, `step` at a time
    bool sees[BLOCK_ROWS];
    bool sees_all[BLOCK_ROWS];  // from `begin` to `stop`

    SegmentPart(const Rows& rows, std::int64_t origin, int slots, int step) {
        std::int64_t first = slots, end = 0;
        for (int row = 0; row < rows.count; ++row) {
            sees[row] = false;
            for (int i = 0; i < rows.seen[row].count; ++i) {
                const Span span = rows.seen[row].spans[i];
                const std::int64_t from = std::max(span.first - origin, std::int64_t{0});
                const std::int64_t to = std::min(span.end - origin, std::int64_t{slots});
                if (from >= to) continue;
                sees[row] = true;
                first = std::min(first, from);
                end = std::max(end, to);
            }
        }
        begin = first < end ? static_cast<int>(first) / step * step : 0;
        stop = first < end ? std::min(static_cast<int>(end + step - 1) / step * step, slots) : 0;
        for (int row = 0; row < rows.count; ++row) sees_all[row] = is_covered(rows.seen[row], origin + begin, origin + stop);
    }

    bool is_seen() const { return begin < stop; }
};

// Scores as weights and the maximum; the weights' sum.
template <class Mask>
inline float weigh_masked(float* scores, int begin, int stop, float* maximum, const Mask& seen) {
    Lanes high = all(-INFINITY);
    for (int slot = begin; slot < stop; slot += LANES) high = larger(load(scores + slot), high);
    *maximum = largest(high);
    const Lanes highest = all(*maximum);
    Lanes added = all(0.0f);
    for (int slot = begin; slot < stop; slot += LANES) {
        const Lanes weight = seen(slot, exponential(load(scores + slot) - highest));
        store(scores + slot, weight);
        added = added + weight;
    }
    return sum(added);
}

// Those of a row; the weights of slots that it does not see are 0.
inline float weigh(float* scores, const Rows& rows, int row, const SegmentPart& part, std::int64_t origin, float* maximum) {
    if (part.sees_all[row]) return weigh_masked(scores, part.begin, part.stop, maximum, [](int, Lanes weight) { return weight; });
    const Seen& seen = rows.seen[row];
    return weigh_masked(scores, part.begin, part.stop, maximum,
                        [&](int slot, Lanes weight) { return chosen(seen_lanes(seen, origin + slot), weight, all(0.0f)); });
}

// The scores of all rows that see anything of a part: of sixteen slots at a time, whose keys are then near for all.
// SIZE is the head's, or 0 where it is of no usual one: loops of a known length are none.
template <int SIZE, class Number>
inline void scores_of(const Number* keys, int own_size, const SegmentPart& part, std::int64_t origin, float scaling, const Rows& rows, Scratch& scratch) {
    const int head_size = SIZE ? SIZE : own_size;
    const Lanes scale = all(scaling), none = all(-INFINITY);
    Lanes products[BLOCK_ROWS][LANES];
    for (int slot = part.begin; slot < part.stop; slot += LANES) {
        const Number* own = keys + static_cast<std::int64_t>(slot) * head_size;
        for (int lane = 0; lane < LANES; ++lane) ask_ahead(own + lane * head_size, head_size);
        products_of_sixteen<SIZE>(own, head_size, rows, scratch, products);
        for (int row = 0; row < rows.count; ++row) {
            const std::uint32_t mask = part.sees_all[row] ? ALL_LANES : seen_lanes(rows.seen[row], origin + slot);
            store(scratch.weights[row] + slot, chosen(mask, sums(products[row]) * scale, none));
        }
    }
}

template <class Number>
inline void attend_segment(const Number* keys, const Number* values, int slots, std::int64_t origin, int head_size,
                           float scaling, Rows& rows, Scratch& scratch) {
    const SegmentPart part(rows, origin, slots, LANES);
    if (!part.is_seen()) return;
    const auto scores = head_size == 64 ? scores_of<64, Number> : head_size == 128 ? scores_of<128, Number> : scores_of<0, Number>;
    scores(keys, head_size, part, origin, scaling, rows, scratch);
    float totals[BLOCK_ROWS], maxima[BLOCK_ROWS];
    for (int row = 0; row < rows.count; ++row) {
        float* weights = scratch.weights[row];
        if (part.sees[row])
            totals[row] = weigh(weights, rows, row, part, origin, &maxima[row]);
        else
            std::fill(weights + part.begin, weights + part.stop, 0.0f);
    }
    add_values_of(values, head_size, scratch, rows.count, part.begin, part.stop, scratch.values);
    for (int row = 0; row < rows.count; ++row)
        if (part.sees[row]) merge(rows, row, head_size, totals[row], maxima[row], scratch.values[row]);
}

// The rows' queries in the format of the keys.
template <class Number>
inline void round_queries(const Rows& rows, int head_size, Scratch& scratch) {
    if constexpr (std::is_same_v<Number, bfloat16>)
        for (int row = 0; row < rows.count; ++row)
            for (int d = 0; d < head_size; ++d) scratch.queries[row][d] = narrowed(rows.query[row][d]);
    spread_queries(rows, head_size, scratch, static_cast<const Number*>(nullptr));
}

// The `segments` of a store from `first` on, whose queries are rounded.
template <class Number>
inline void attend_rows(const KakeyaStore& store, int first, int segments, int place, int kv_heads, int kv_head, int head_size, float scaling,
                        Rows& rows, Scratch& scratch) {
    [[maybe_unused]] const FlushingFor<Number> flushing;
    round_queries<Number>(rows, head_size, scratch);
    std::int64_t origin = 0;
    for (int i = 0; i < first; ++i) origin += store.segments[i].slots;
    for (int i = first; i < first + segments; ++i) {
        const KakeyaSegment& segment = store.segments[i];
        const std::int64_t size = static_cast<std::int64_t>(segment.slots) * head_size;
        const Number* keys = static_cast<const Number*>(segment.numbers) + (2 * place * kv_heads + kv_head) * size;
        attend_segment(keys, keys + kv_heads * size, segment.slots, origin, head_size, scaling, rows, scratch);
        origin += segment.slots;
    }
}

}  // namespace kakeya
