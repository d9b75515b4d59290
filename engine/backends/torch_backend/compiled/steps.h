// What forwards are made of: functions of a row, and the steps that the threads of a call take together.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ahead.h"
#include "decoder.h"
#include "lanes.h"
#include "product.h"
#include "rounding.h"
#include "workers.h"

namespace kakeya {

// So many rows are prepared faster by one thread than by several that meet once more.
constexpr int FEW_ROWS = 4;
constexpr std::int64_t WAITING_BYTES = 1 << 18;  // half of the smallest second cache

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

// Does task(i) for those i of `count` that this thread gets, one after the other.
template <class Task>
inline void taken(Crew& call, int phase, int count, const Task& task) {
    std::atomic<int>& next = call.next[phase].value;
    for (int i = next.fetch_add(1, std::memory_order_relaxed); i < count; i = next.fetch_add(1, std::memory_order_relaxed)) task(i);
}

// The same of small tasks that are alike: many at once while many are left, and single ones in the end, so that no
// thread waits for another for longer than one of them takes. soon(i) tells which comes behind the task that follows.
// Source: Polychronopoulos and Kuck, "Guided Self-Scheduling" (1987).
template <class Task, class Soon>
inline void shared_out(Crew& call, int phase, int count, const Task& task, const Soon& soon) {
    struct Some {
        int first, end;
    };
    std::atomic<int>& next = call.next[phase].value;
    const int parts = 2 * static_cast<int>(call.barrier.threads());
    const auto take = [&] {
        Some some{next.load(std::memory_order_relaxed), 0};
        do some.end = some.first + std::max(1, (count - some.first) / parts);
        while (some.first < count && !next.compare_exchange_weak(some.first, some.end, std::memory_order_relaxed));
        return some;
    };
    Some after;
    for (Some own = take(); own.first < count; own = after)
        for (int i = own.first; i < own.end; ++i) {
            if (i + 1 == own.end) {
                after = take();
                if (after.first < count) soon(after.first);
            }
            task(i);
        }
}

// The beginning of a product's weights, for which a thread asks while it waits: it would wait for them next.
class Coming {
  public:
    Coming() = default;
    explicit Coming(const KakeyaMatrix& matrix) : at_(panel_at(matrix, 0)), end_(at_ + std::min(WAITING_BYTES, panel_at(matrix, panels(matrix)) - at_)) {}

    void ask_more() {
        for (int line = 0; line < 4 && at_ < end_; ++line, at_ += LINE) ask(at_);
    }

  private:
    const char* at_ = nullptr;
    const char* end_ = nullptr;
};

// then(row) for all rows once everybody is here: in one thread if they are few. `next` comes behind it.
template <class Then>
inline void rows_then(Crew& call, int phase, int rows, const Then& then, Coming next = {}) {
    const auto meanwhile = [&] { next.ask_more(); };
    if (rows <= FEW_ROWS) {
        call.barrier.meet([&] { for (int row = 0; row < rows; ++row) then(row); }, meanwhile);
        return;
    }
    call.barrier.meet([] {}, meanwhile);
    taken(call, phase, rows, then);
    call.barrier.meet([] {}, meanwhile);
}

// A product's panels, and then(row) behind them, in two phases; `next` is the product that follows. Who knows the
// weights' format names it, and how many rows go at once.
template <class Weight = void, int MOST = 0, class Take, class Then>
inline void product(Crew& call, int phase, const KakeyaMatrix& matrix, const Inputs& inputs, int rows, const Take& take, const Then& then, Coming next = {}) {
    const auto one = [&](int panel) {
        if constexpr (std::is_void_v<Weight>)
            panel_of(matrix, inputs, rows, panel, take);
        else
            one_panel<Weight, MOST>(matrix, inputs, rows, panel, take);
    };
    shared_out(call, phase, panels(matrix), one, [&](int panel) {
        // What is asked for ahead of a panel's own lines is behind them, not here.
        const char* from = panel_at(matrix, panel);
        for (int at = 0; at < WEIGHTS_AHEAD; at += LINE) ask(from + at);
    });
    rows_then(call, phase + 1, rows, then, next);
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
