// Attention of few rows, shared by threads: what is found of single segments, to be merged in one order.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "decoder.h"

namespace kakeya {

// Segments of a store, and behind them what it has packed.
inline int segments_of(const KakeyaStore& store) {
    return store.segment_count + (store.packed ? store.packed->segment_count : 0);
}

// Where what was found of single segments lies: for each feed, group of layers aside, [segments, rows, heads].
struct Parts {
    std::vector<std::int64_t> firsts;  // of a feed's
    std::vector<float> mixed, totals, maxima;
    std::vector<char> begun;

    // Has room for the layers of any group.
    void make(const KakeyaModel& model, const KakeyaBatch& batch, int groups) {
        std::int64_t count = 0;
        for (int feed = 0; feed < batch.feed_count; ++feed) {
            firsts.push_back(count);
            int most = 0;
            for (int group = 0; group < groups; ++group) most = std::max(most, segments_of(batch.feeds[feed].stores[group]));
            count += static_cast<std::int64_t>(most) * batch.feeds[feed].rows * model.heads;
        }
        mixed.resize(static_cast<std::size_t>(count) * model.head_size);
        totals.resize(static_cast<std::size_t>(count));
        maxima.resize(static_cast<std::size_t>(count));
        begun.resize(static_cast<std::size_t>(count));
    }

    std::int64_t at(const KakeyaModel& model, const KakeyaBatch& batch, int feed, int segment, int row, int head) const {
        return firsts[feed] + (static_cast<std::int64_t>(segment) * batch.feeds[feed].rows + row) * model.heads + head;
    }
};

}  // namespace kakeya
