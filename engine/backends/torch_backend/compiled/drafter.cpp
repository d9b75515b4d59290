// The layers of a DFlash drafter over one block of rows, which see each other.
//
// A drafter decides nothing, so that its bits are nobody's; they depend on no threads all the same.

#include "drafter.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "attention.h"
#include "lanes.h"
#include "product.h"
#include "rounding.h"
#include "steps.h"
#include "workers.h"

namespace kakeya {
namespace {

constexpr int VERSION = 1;
constexpr int PHASES = 16;  // of a layer

#if KAKEYA_AVX512
// A block's usual rows go at once: registers have no room for all of their sums then, but those that
// have to wait in memory are needed once in 32 inputs.
constexpr int AT_ONCE = 8;
#else
constexpr int AT_ONCE = Layout<Int8Block>::rows;
#endif

template <class Take, class Then>
void whole_product(Crew& call, int phase, const KakeyaMatrix& matrix, const Inputs& inputs, int rows, const Take& take, const Then& then) {
    product<Int8Block, AT_ONCE>(call, phase, matrix, inputs, rows, take, then);
}

struct Call : Crew {
    const KakeyaDrafter& drafter;
    const KakeyaDraftBlock& block;
    // By row: a sublayer's normed input, what its first product takes, queries with keys and values,
    // weighted values, the gated ones, what its last product gives, and deltas, padded to panels.
    std::vector<float> normed, entered, joint, mixed, inner, left, deltas;
    Rounded rounded;

    Call(const KakeyaDrafter& of, const KakeyaDraftBlock& at)
        : Crew(1 + static_cast<std::size_t>(of.layers) * PHASES), drafter(of), block(at), normed(sized(of.hidden)), entered(sized(of.hidden)),
          joint(sized(joint_size())), mixed(sized(of.heads * of.head_size)), inner(sized(of.inner)), left(sized(of.hidden)),
          deltas(sized(deltas_size())), rounded(at.rows, std::max({of.hidden, of.heads * of.head_size, of.inner})) {}

    int joint_size() const { return (drafter.heads + 2 * drafter.kv_heads) * drafter.head_size; }
    int deltas_size() const { return drafter.taps ? panels(drafter.layer->attention_deltas) * PANEL : 0; }

  private:
    std::size_t sized(int numbers) const { return static_cast<std::size_t>(block.rows) * numbers; }
};

// A convolution over the block's rows: of row r the sum over taps t, ascending, of (base[t] + the row's
// own delta[t], which a group of channels shares) times row r - t of `values`; none is before the first.
// `take` gets each sixteen channels.
template <class Take>
void convolved(const Call& call, const float* base, int side, const float* values, int row, const Take& take) {
    const KakeyaDrafter& drafter = call.drafter;
    const int hidden = drafter.hidden, taps = drafter.taps, groups = hidden / drafter.group_size;
    const float* deltas = call.deltas.data() + static_cast<std::int64_t>(row) * call.deltas_size() + side * taps * groups;
    const float* own = base + static_cast<std::int64_t>(side) * taps * hidden;
    for (int c = 0; c < hidden; c += LANES) {
        Lanes found = all(0.0f);
        for (int tap = 0; tap <= std::min(taps - 1, row); ++tap) {
            const Lanes factor = load(own + tap * hidden + c) + all(deltas[tap * groups + c / drafter.group_size]);
            found = fused(factor, load(values + static_cast<std::int64_t>(row - tap) * hidden + c), found);
        }
        take(c, found);
    }
}

// A sublayer's input, normed, convolved, and multiplied with its first matrix, in the phases from
// `phase` on; the row that is normed is `hidden`'s. `then(row)` comes behind the product.
template <class Take, class Then>
void enter(Call& call, int phase, const float* gain, const KakeyaMatrix& kernel, const float* base, const KakeyaMatrix& matrix, const Take& take,
           const Then& then) {
    const KakeyaDrafter& drafter = call.drafter;
    const int hidden = drafter.hidden, rows = call.block.rows;
    const bool convolves = drafter.taps > 0;
    const Inputs normed = call.rounded.of(call.normed.data()), entered = call.rounded.of(call.entered.data());
    rows_then(call, phase, rows, [&](int row) {
        const std::int64_t from = static_cast<std::int64_t>(row) * hidden;
        norm(call.block.hidden + from, gain, hidden, drafter.epsilon, call.normed.data() + from);
        round_for(convolves ? kernel : matrix, normed, row);
    });
    if (convolves) {
        whole_product(call, phase + 1, kernel, normed, rows, Written{call.deltas.data(), call.deltas_size()}, [&](int row) {
            float* to = call.entered.data() + static_cast<std::int64_t>(row) * hidden;
            convolved(call, base, 0, call.normed.data(), row, [&](int c, Lanes found) { store(to + c, found); });
            round_for(matrix, entered, row);
        });
    }
    whole_product(call, phase + 3, matrix, convolves ? entered : normed, rows, take, then);
}

// What a sublayer adds to the hidden states: its last product, convolved.
void leave(Call& call, int phase, const float* base, const KakeyaMatrix& matrix, const float* inputs) {
    const KakeyaDrafter& drafter = call.drafter;
    const int hidden = drafter.hidden;
    whole_product(call, phase, matrix, call.rounded.of(inputs), call.block.rows, Written{call.left.data(), hidden}, [&](int row) {
        float* to = call.block.hidden + static_cast<std::int64_t>(row) * hidden;
        if (drafter.taps) {
            convolved(call, base, 1, call.left.data(), row, [&](int c, Lanes found) { store(to + c, load(to + c) + found); });
            return;
        }
        const float* own = call.left.data() + static_cast<std::int64_t>(row) * hidden;
        for (int c = 0; c < hidden; c += LANES) store(to + c, load(to + c) + load(own + c));
    });
}

// The keys of a K/V head of a layer; its values are a whole such half behind them.
bfloat16* keys_of(const Call& call, int index, int kv_head) {
    const KakeyaDrafter& drafter = call.drafter;
    return call.block.slots + (static_cast<std::int64_t>(index) * drafter.kv_heads + kv_head) * call.block.slot_count * drafter.head_size;
}
std::int64_t half_of_slots(const Call& call) {
    return static_cast<std::int64_t>(call.drafter.layers) * call.drafter.kv_heads * call.block.slot_count * call.drafter.head_size;
}

// Norms and turns the heads of a row, and has its keys and values in their slots.
void place_row(Call& call, int index, int row) {
    const KakeyaDrafter& drafter = call.drafter;
    const KakeyaDraftBlock& block = call.block;
    const int size = drafter.head_size, turned = drafter.heads + drafter.kv_heads;
    float* heads = call.joint.data() + static_cast<std::int64_t>(row) * call.joint_size();
    const std::int64_t angles = static_cast<std::int64_t>(row) * size;
    for (int head = 0; head < turned; ++head) {
        float* own = heads + head * size;
        norm(own, drafter.layer[index].head_norm + head * size, size, drafter.epsilon, own);
        rotate(own, block.cosines + angles, block.sines + angles, size);
    }
    const float* keys = heads + drafter.heads * size;
    for (int head = 0; head < drafter.kv_heads; ++head, keys += size) {
        bfloat16* to = keys_of(call, index, head) + (block.begin + row) * size;
        for (int d = 0; d < size; ++d) {
            to[d] = narrowed(keys[d]);
            to[half_of_slots(call) + d] = narrowed(keys[drafter.kv_heads * size + d]);
        }
    }
}

// The slots that a row sees: the context's and the block's, as far as the layer's rule lets it.
Span seen_by(const KakeyaDraftLayer& layer, const KakeyaDraftBlock& block, std::int64_t row) {
    const std::int64_t own = block.begin + row;
    Span seen{block.first, layer.is_causal ? own + 1 : block.begin + block.rows};
    if (layer.window) {
        seen.first = std::max(seen.first, own - layer.window + layer.is_causal);
        seen.end = std::min(seen.end, own + layer.window + 1);
    }
    return seen;
}

// Some rows of one K/V head, the heads that share its keys, query by query.
void attend(Call& call, int index, int task) {
    const KakeyaDrafter& drafter = call.drafter;
    const KakeyaDraftBlock& block = call.block;
    const int size = drafter.head_size, groups = drafter.heads / drafter.kv_heads;
    const int count = block.rows * groups, blocks = (count + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int kv_head = task / blocks, first = task % blocks * BLOCK_ROWS;
    thread_local std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
    float totals[BLOCK_ROWS], maxima[BLOCK_ROWS];
    Rows rows;
    for (int i = first; i < std::min(first + BLOCK_ROWS, count); ++i) {
        const std::int64_t row = i / groups, head = kv_head * groups + i % groups;
        const int to = rows.count++;
        rows.query[to] = call.joint.data() + row * call.joint_size() + head * size;
        rows.mixed[to] = call.mixed.data() + (row * drafter.heads + head) * size;
        rows.total[to] = &totals[to];
        rows.maximum[to] = &maxima[to];
        const Span seen = seen_by(drafter.layer[index], block, row);
        rows.seen[to].add(seen.first, seen.end);
        rows.begun[to] = false;
    }
    const FlushingFor<bfloat16> flushing;
    round_queries<bfloat16>(rows, size, *scratch);
    const bfloat16* keys = keys_of(call, index, kv_head);
    // Of the slots behind the block up to the next sixteen nothing is seen.
    const std::int64_t values = half_of_slots(call), end = (block.begin + block.rows + LANES - 1) / LANES * LANES;
    for (std::int64_t origin = 0; origin < end; origin += MOST_SLOTS) {
        const bfloat16* own = keys + origin * size;
        attend_segment(own, own + values, static_cast<int>(std::min<std::int64_t>(MOST_SLOTS, end - origin)), origin, size, 1.0f, rows, *scratch);
    }
    for (int i = 0; i < rows.count; ++i)
        for (int d = 0; d < size; d += LANES) store(rows.mixed[i] + d, load(rows.mixed[i] + d) / all(totals[i]));
}

void one_layer(Call& call, int index) {
    const KakeyaDrafter& drafter = call.drafter;
    const KakeyaDraftLayer& layer = drafter.layer[index];
    const int rows = call.block.rows, phase = index * PHASES;
    enter(call, phase, layer.input_norm, layer.attention_deltas, layer.attention_base, layer.joint, Written{call.joint.data(), call.joint_size()},
          [&](int row) { place_row(call, index, row); });
    const int groups = drafter.heads / drafter.kv_heads;
    taken(call, phase + 5, (rows * groups + BLOCK_ROWS - 1) / BLOCK_ROWS * drafter.kv_heads, [&](int task) { attend(call, index, task); });
    const Inputs mixed = call.rounded.of(call.mixed.data()), inner = call.rounded.of(call.inner.data());
    rows_then(call, phase + 6, rows, [&](int row) { round_for(layer.output, mixed, row); });
    leave(call, phase + 7, layer.attention_base, layer.output, call.mixed.data());
    const auto opened = [&](int row, int panel, const Lanes(&found)[WIDE]) {
        store(call.inner.data() + static_cast<std::int64_t>(row) * drafter.inner + panel * LANES, gated(found[0], found[1]));
    };
    enter(call, phase + 9, layer.middle_norm, layer.mlp_deltas, layer.mlp_base, layer.gate_up, opened,
          [&](int row) { round_for(layer.down, inner, row); });
    leave(call, phase + 14, layer.mlp_base, layer.down, call.inner.data());
}

void draft_job(void* context, unsigned) {
    Call& call = *static_cast<Call*>(context);
    const KakeyaDrafter& drafter = call.drafter;
    for (int index = 0; index < drafter.layers; ++index) one_layer(call, index);
    rows_then(call, drafter.layers * PHASES, call.block.rows, [&](int row) {
        float* own = call.block.hidden + static_cast<std::int64_t>(row) * drafter.hidden;
        norm(own, drafter.last_norm, drafter.hidden, drafter.epsilon, own);
    });
}

// The `count` largest of a row's logits that were put: the largest first, of equal ones the smaller id, in
// whatever order they came. What is no number counts as the least.
struct Largest {
    int count;
    std::int32_t* ids;
    float* values;
    int found = 0;

    bool takes(float value) const { return found < count || !(value < values[count - 1]); }

    void put(std::int32_t id, float value) {
        if (value != value) value = -INFINITY;
        const auto is_before = [&](int at) { return value > values[at] || (value == values[at] && id < ids[at]); };
        if (found == count && !is_before(count - 1)) return;
        int at = found < count ? found++ : count - 1;
        for (; at > 0 && is_before(at - 1); --at) {
            values[at] = values[at - 1];
            ids[at] = ids[at - 1];
        }
        values[at] = value;
        ids[at] = id;
    }
};

struct HeadCall : Crew {
    const KakeyaMatrix& head;
    const float* hidden;
    const int rows, count;
    std::int32_t* ids;
    float* values;
    std::vector<std::int32_t> own_ids;  // [threads, rows, count]
    std::vector<float> own_values;
    std::vector<Largest> own;  // [threads, rows]
    Rounded rounded;

    HeadCall(const KakeyaMatrix& of, const float* inputs, int rows, int count, std::int32_t* ids, float* values, int threads)
        : Crew(3), head(of), hidden(inputs), rows(rows), count(count), ids(ids), values(values), own_ids(static_cast<std::size_t>(threads) * rows * count),
          own_values(own_ids.size()), rounded(rows, of.inputs) {
        for (std::size_t at = 0; at < own_ids.size(); at += count) own.push_back({count, own_ids.data() + at, own_values.data() + at});
    }
};

// Logits are looked at as they are made, and kept nowhere.
void head_job(void* context, unsigned thread) {
    HeadCall& call = *static_cast<HeadCall*>(context);
    const Inputs inputs = call.rounded.of(call.hidden);
    Largest* own = call.own.data() + static_cast<std::size_t>(thread) * call.rows;
    const auto look = [&](int row, int panel, const Lanes(&found)[WIDE]) {
        Lanes high = found[0];
        for (int lane = 1; lane < WIDE; ++lane) high = larger(high, found[lane]);
        if (!own[row].takes(largest(high))) return;
        float logits[PANEL];
        for (int lane = 0; lane < WIDE; ++lane) store(logits + lane * LANES, found[lane]);
        const int first = panel * PANEL, end = std::min(PANEL, call.head.columns - first);
        for (int i = 0; i < end; ++i) own[row].put(first + i, logits[i]);
    };
    rows_then(call, 0, call.rows, [&](int row) { round_for(call.head, inputs, row); });
    whole_product(call, 1, call.head, inputs, call.rows, look, [&](int row) {
        const std::int64_t to = static_cast<std::int64_t>(row) * call.count;
        Largest all_of{call.count, call.ids + to, call.values + to};
        for (std::size_t at = row; at < call.own.size(); at += call.rows)
            for (int i = 0; i < call.own[at].found; ++i) all_of.put(call.own[at].ids[i], call.own[at].values[i]);
    });
}

}  // namespace
}  // namespace kakeya

extern "C" {

void kakeya_draft(void* workers, const KakeyaDrafter* drafter, const KakeyaDraftBlock* block, std::int32_t threads) {
    kakeya::Call call(*drafter, *block);
    call.barrier.begin(static_cast<unsigned>(threads));
    static_cast<kakeya::Workers*>(workers)->run(static_cast<unsigned>(threads), kakeya::draft_job, &call);
}

void kakeya_candidates(void* workers, const KakeyaMatrix* head, const float* hidden, std::int32_t rows, std::int32_t count, std::int32_t* ids, float* logits,
                       std::int32_t threads) {
    kakeya::HeadCall call(*head, hidden, rows, count, ids, logits, threads);
    call.barrier.begin(static_cast<unsigned>(threads));
    static_cast<kakeya::Workers*>(workers)->run(static_cast<unsigned>(threads), kakeya::head_job, &call);
}

void* kakeya_workers() { return new kakeya::Workers(); }

void kakeya_free_workers(void* workers) { delete static_cast<kakeya::Workers*>(workers); }

std::int32_t kakeya_version() { return kakeya::VERSION; }
}
