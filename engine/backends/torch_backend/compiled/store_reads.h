// Attention of rows to the segments of a store, shared by threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention.h"
#include "decoder.h"
#include "packed_attention.h"

namespace kakeya {

// A read of one layer's segments: each segment's part is found by itself, so that threads have
// enough to do, and then all are merged in ascending order.
struct ReadCall {
    const KakeyaRead* read;
    int blocks;
    std::vector<std::int64_t> origins;  // of segments
    // By segment, as the read's own.
    std::vector<float> mixed, totals, maxima;
    std::vector<char> begun;
    std::atomic<int> next{0};

    explicit ReadCall(const KakeyaRead& of) : read(&of), blocks((row_count() + BLOCK_ROWS - 1) / BLOCK_ROWS) {
        std::int64_t origin = 0;
        for (int i = 0; i < of.segment_count; ++i) {
            origins.push_back(origin);
            origin += of.segments[i].slots;
        }
        const std::size_t parts = static_cast<std::size_t>(of.segment_count) * of.kv_heads * row_count();
        mixed.resize(parts * of.head_size);
        totals.resize(parts);
        maxima.resize(parts);
        begun.resize(parts);
    }

    int row_count() const { return read->groups * read->queries; }

    std::size_t part(int segment, int kv_head, int row) const {
        return (static_cast<std::size_t>(segment) * read->kv_heads + kv_head) * row_count() + row;
    }
};

// Rows of a block; where they put what they find is `to`'s to say.
template <class To>
Rows rows_of(const ReadCall& call, int kv_head, int block, const To& to) {
    const KakeyaRead& read = *call.read;
    const int head_size = read.head_size, last = std::min((block + 1) * BLOCK_ROWS, call.row_count());
    Rows rows;
    for (int row = block * BLOCK_ROWS; row < last; ++row) {
        const int i = rows.count++;
        rows.query[i] = read.rows + (static_cast<std::int64_t>(kv_head) * call.row_count() + row) * head_size;
        rows.seen[i].add(read.firsts[row % read.queries], read.ends[row % read.queries]);
        rows.begun[i] = false;
        to(i, row, rows);
    }
    return rows;
}

template <class Number>
void attend_numbers(const ReadCall& call, int index, int kv_head, Rows& rows, Scratch& scratch) {
    const KakeyaRead& read = *call.read;
    const KakeyaSegment& segment = read.segments[index];
    const std::int64_t from = static_cast<std::int64_t>(kv_head) * segment.slots * read.head_size;
    [[maybe_unused]] const FlushingFor<Number> flushing;
    round_queries<Number>(rows, read.head_size, scratch);
    attend_segment(static_cast<const Number*>(segment.numbers) + from, static_cast<const Number*>(read.values[index]) + from, segment.slots,
                   call.origins[index], read.head_size, read.scaling, rows, scratch);
}

// What a block of rows finds in one segment.
inline void attend_one(const ReadCall& call, int index, int kv_head, Rows& rows, Scratch& scratch) {
    const KakeyaRead& read = *call.read;
    const KakeyaSegment& segment = read.segments[index];
    if (read.packed) {
        thread_local std::unique_ptr<PackedScratch> more = std::make_unique<PackedScratch>();
        rotate_queries(*read.packed, rows, *more);
        const std::uint8_t* tiles = static_cast<const std::uint8_t*>(segment.numbers) + static_cast<std::int64_t>(kv_head) * (segment.slots / TILE) * read.packed->tile_bytes;
        attend_packed_segment(*read.packed, tiles, segment.slots, call.origins[index], read.scaling, rows, scratch, *more);
        return;
    }
    if (read.format == KAKEYA_BFLOAT16)
        attend_numbers<bfloat16>(call, index, kv_head, rows, scratch);
    else
        attend_numbers<float>(call, index, kv_head, rows, scratch);
}

inline void attend_job(void* context, unsigned) {
    ReadCall& call = *static_cast<ReadCall*>(context);
    const KakeyaRead& read = *call.read;
    const int of_segment = read.kv_heads * call.blocks, head_size = read.head_size;
    thread_local std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
    for (int task = call.next++; task < read.segment_count * of_segment; task = call.next++) {
        const int index = task / of_segment, kv_head = task % of_segment / call.blocks, block = task % call.blocks;
        Rows rows = rows_of(call, kv_head, block, [&](int i, int row, Rows& own) {
            const std::size_t part = call.part(index, kv_head, row);
            own.mixed[i] = call.mixed.data() + part * head_size;
            own.total[i] = &call.totals[part];
            own.maximum[i] = &call.maxima[part];
        });
        attend_one(call, index, kv_head, rows, *scratch);
        for (int i = 0; i < rows.count; ++i) call.begun[call.part(index, kv_head, block * BLOCK_ROWS + i)] = rows.begun[i];
    }
}

inline void merge_job(void* context, unsigned) {
    ReadCall& call = *static_cast<ReadCall*>(context);
    const KakeyaRead& read = *call.read;
    const int head_size = read.head_size;
    for (int task = call.next++; task < read.kv_heads * call.blocks; task = call.next++) {
        const int kv_head = task / call.blocks, block = task % call.blocks;
        Rows rows = rows_of(call, kv_head, block, [&](int i, int row, Rows& own) {
            const std::int64_t found = static_cast<std::int64_t>(kv_head) * call.row_count() + row;
            own.mixed[i] = read.mixed + found * head_size;
            own.total[i] = read.totals + found;
            own.maximum[i] = read.maxima + found;
        });
        for (int i = 0; i < rows.count; ++i) {
            for (int segment = 0; segment < read.segment_count; ++segment) {
                const std::size_t part = call.part(segment, kv_head, block * BLOCK_ROWS + i);
                if (call.begun[part]) merge(rows, i, head_size, call.totals[part], call.maxima[part], call.mixed.data() + part * head_size);
            }
            if (rows.begun[i]) continue;
            *rows.total[i] = 0.0f;
            std::fill(rows.mixed[i], rows.mixed[i] + head_size, 0.0f);
        }
    }
}

}  // namespace kakeya
