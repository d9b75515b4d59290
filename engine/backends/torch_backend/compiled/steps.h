// What forwards are made of: functions of a row, and the steps that the threads of a call take together.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "decoder.h"
#include "lanes.h"
#include "product.h"
#include "rounding.h"
#include "workers.h"

namespace kakeya {

// So many rows are prepared faster by one thread than by several that meet once more.
constexpr int FEW_ROWS = 4;
// Tasks are taken so many times by each thread: taking one costs as much as a small one does.
constexpr int TURNS = 4;

// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
[[gnu::noinline]] inline void norm(const float* values, const float* weights, int size, float epsilon, float* found) {
    Lanes squares = all(0.0f);
    for (int i = 0; i < size; i += LANES) {
        const Lanes own = load(values + i);
        squares = fused(own, own, squares);
    }
    const Lanes scale = all(1.0f / std::sqrt(sum(squares) / static_cast<float>(size) + epsilon));
    for (int i = 0; i < size; i += LANES) store(found + i, load(values + i) * scale * load(weights + i));
}

inline Lanes gated(Lanes gate, Lanes up) { return gate / (all(1.0f) + exponential(all(0.0f) - gate)) * up; }

// Source: Su et al., "RoFormer" (2021), with the halves of a head as the pairs.
inline void rotate(float* head, const float* cosines, const float* sines, int size) {
    const int half = size / 2;
    for (int i = 0; i < half; i += LANES) {
        const Lanes low = load(head + i), high = load(head + half + i);
        store(head + i, fused(low, load(cosines + i), high * load(sines + i)));
        store(head + half + i, fused(high, load(cosines + half + i), low * load(sines + half + i)));
    }
}

struct Counter {
    alignas(64) std::atomic<int> value{0};
};

// Where the threads of a call meet, and what each step of it has given out.
struct Crew {
    Barrier barrier;
    std::vector<Counter> next;

    explicit Crew(std::size_t counters) : next(counters) {}
};

// Has a row that is complete ready for a product with the matrix.
inline void round_for(const KakeyaMatrix& matrix, const Inputs& inputs, std::int64_t row) {
    inputs.round_for(matrix.format, row, matrix.inputs);
}

// Does task(i) for those i of `count` that this thread gets, `at_once` at a time.
template <class Task>
inline void taken(Crew& call, int phase, int count, int at_once, const Task& task) {
    std::atomic<int>& next = call.next[phase].value;
    for (int first = next.fetch_add(at_once, std::memory_order_relaxed); first < count; first = next.fetch_add(at_once, std::memory_order_relaxed))
        for (int i = first; i < std::min(first + at_once, count); ++i) task(i);
}

// So many tasks, or panels, that each thread comes `TURNS` times.
inline int share_of(const Crew& call, int count) { return std::max(1, count / (TURNS * static_cast<int>(call.barrier.threads()))); }

// then(row) for all rows once everybody is here: in one thread if they are few.
template <class Then>
inline void rows_then(Crew& call, int phase, int rows, const Then& then) {
    if (rows <= FEW_ROWS) {
        call.barrier.meet([&] { for (int row = 0; row < rows; ++row) then(row); });
        return;
    }
    call.barrier.meet([] {});
    taken(call, phase, rows, 1, then);
    call.barrier.meet([] {});
}

// A product's panels, and then(row) behind them, in two phases. Who knows the weights'
// format names it, and how many rows go at once.
template <class Weight = void, int MOST = 0, class Take, class Then>
inline void product(Crew& call, int phase, const KakeyaMatrix& matrix, const Inputs& inputs, int rows, const Take& take, const Then& then) {
    const int count = panels(matrix);
    taken(call, phase, count, share_of(call, count), [&](int panel) {
        if constexpr (std::is_void_v<Weight>)
            panel_of(matrix, inputs, rows, panel, take);
        else
            one_panel<Weight, MOST>(matrix, inputs, rows, panel, take);
    });
    rows_then(call, phase + 1, rows, then);
}

// Takes a product's outputs as they are: those of the first `width` columns, row by row.
struct Written {
    float* to;
    std::int64_t width;

    void operator()(int row, int panel, const Lanes (&found)[WIDE]) const {
        for (int lane = 0; lane < WIDE && panel * PANEL + lane * LANES < width; ++lane)
            store(to + row * width + panel * PANEL + lane * LANES, found[lane]);
    }
};

}  // namespace kakeya
