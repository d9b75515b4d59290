// The layers of a plain decoder over a batch of rows: Llama, Mistral, Qwen2, Qwen3.
//
// Everything but attention is row by row, and attention goes by a row's own position: so a row's
// bits are a function of its history, whatever rows stand beside it, and on every processor.

#include "decoder.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "attention.h"
#include "attention_parts.h"
#include "lanes.h"
#include "packed_attention.h"
#include "preview.h"
#include "product.h"
#include "rounding.h"
#include "steps.h"
#include "store_reads.h"
#include "tile_calls.h"
#include "weight_rows.h"
#include "workers.h"

namespace kakeya {
namespace {

constexpr int VERSION = 10;
constexpr int PROJECT = 1, ATTEND = 2, FINISH = 4;
constexpr int PHASES = 10;  // of a layer, each behind the others
constexpr int TURNS = 4;    // fewer blocks of attention for a thread are divided

// What the threads of one call share.
struct Call : Crew {
    const KakeyaModel* model;
    const KakeyaBatch* batch;
    int first, end, phases;
    std::vector<int> block_ends;  // of the attention's tasks, by feed
    // Where few tasks would leave threads without one, each segment is a task: their ends by group of layers, by feed.
    bool is_split = false;
    std::vector<std::vector<int>> part_ends;
    Parts parts;

    // What is asked of `kakeya_logits` and `kakeya_product`.
    const KakeyaMatrix* matrix = nullptr;
    const float* inputs = nullptr;
    const std::int32_t* chosen = nullptr;
    float* outputs = nullptr;
    Preview* preview = nullptr;
    int rows;

    Rounded rounded;

    // Inputs of one product at a time are rounded: `rows` of them, of up to so many numbers.
    Call(std::size_t counters, std::int64_t rows, std::int64_t most_inputs) : Crew(counters), rows(static_cast<int>(rows)), rounded(rows, most_inputs) {}
};

template <class Number>
void written(Number* to, const float* from, int size);

template <>
void written<float>(float* to, const float* from, int size) {
    std::memcpy(to, from, sizeof(float) * size);
}

template <>
void written<bfloat16>(bfloat16* to, const float* from, int size) {
    for (int i = 0; i < size; ++i) to[i] = narrowed(from[i]);
}

std::int64_t slot_of(const KakeyaStore& store, std::int64_t position) {
    if (store.ring == 0) return position - store.origin;
    return position < store.sink ? position : store.sink + (position - store.sink) % store.ring;
}

template <class Number>
void write_row(const KakeyaModel& model, const KakeyaStore& store, int place, std::int64_t position, const float* keys) {
    std::int64_t slot = slot_of(store, position);
    const KakeyaSegment* segment = store.segments;
    while (slot >= segment->slots) slot -= segment++->slots;
    const std::int64_t size = static_cast<std::int64_t>(segment->slots) * model.head_size;
    Number* to = static_cast<Number*>(segment->numbers) + 2 * place * model.kv_heads * size + slot * model.head_size;
    for (int head = 0; head < 2 * model.kv_heads; ++head, to += size, keys += model.head_size)
        written(to, keys, model.head_size);
}

const KakeyaFeed& feed_of(const KakeyaBatch& batch, int row) {
    const KakeyaFeed* feed = batch.feeds;
    while (row >= feed->first_row + feed->rows) ++feed;
    return *feed;
}

void project_row(const KakeyaModel& model, const KakeyaBatch& batch, const KakeyaLayer& layer, int index, int row) {
    const int size = model.head_size, turned = model.heads + model.kv_heads;
    float* heads = batch.joint + static_cast<std::int64_t>(row) * (turned + model.kv_heads) * size;
    const std::int64_t angles = static_cast<std::int64_t>(row) * size;
    for (int head = 0; head < turned; ++head) {
        float* own = heads + head * size;
        const float* weights = head < model.heads ? layer.query_norm : layer.key_norm;
        if (weights) norm(own, weights, size, model.epsilon, own);
        rotate(own, batch.cosines + angles, batch.sines + angles, size);
    }
    const KakeyaFeed& feed = feed_of(batch, row);
    const KakeyaStore& store = feed.stores[batch.group_of_layer[index]];
    const std::int64_t position = feed.position + row - feed.first_row;
    const float* keys = heads + model.heads * size;
    if (model.cache_format == KAKEYA_BFLOAT16) {
        write_row<bfloat16>(model, store, batch.place_of_layer[index], position, keys);
    } else {
        write_row<float>(model, store, batch.place_of_layer[index], position, keys);
    }
}

int blocks_of(const KakeyaModel& model, const KakeyaFeed& feed) {
    return (feed.rows * (model.heads / model.kv_heads) + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

// One block of rows of one K/V head of one feed, the heads that share its keys, query by query: and
// all segments, or one of them.
struct AttentionTask {
    int feed, kv_head, block, first, segments;
};

AttentionTask attention_task(const Call& call, int index, int task) {
    const KakeyaBatch& batch = *call.batch;
    const int group = batch.group_of_layer[index];
    const std::vector<int>& ends = call.is_split ? call.part_ends[group] : call.block_ends;
    AttentionTask found{};
    while (task >= ends[found.feed]) ++found.feed;
    const KakeyaFeed& feed = batch.feeds[found.feed];
    int own = task - (found.feed ? ends[found.feed - 1] : 0);
    found.segments = segments_of(feed.stores[group]);
    if (call.is_split) {
        found.first = own % found.segments;
        own /= found.segments;
        found.segments = 1;
    }
    const int blocks = blocks_of(*call.model, feed);
    found.kv_head = own / blocks;
    found.block = own % blocks;
    return found;
}

// The part of a task that is of segments `first` .. `end` - 1 among those of one kind.
Span part_of(const AttentionTask& task, int first, int end) {
    return {std::max(task.first, first) - first, std::min(task.first + task.segments, end) - first};
}

void attend_block(Call& call, int index, int number) {
    const KakeyaModel& model = *call.model;
    const KakeyaBatch& batch = *call.batch;
    const AttentionTask task = attention_task(call, index, number);
    const KakeyaFeed& feed = batch.feeds[task.feed];
    const int groups = model.heads / model.kv_heads, size = model.head_size;
    const KakeyaStore& store = feed.stores[batch.group_of_layer[index]];
    thread_local std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
    Rows rows;
    std::int64_t parts[BLOCK_ROWS];
    const int last = std::min((task.block + 1) * BLOCK_ROWS, feed.rows * groups);
    for (int i = task.block * BLOCK_ROWS; i < last; ++i) {
        const std::int64_t row = feed.first_row + i / groups;
        const int head = task.kv_head * groups + i % groups;
        const int to = rows.count++;
        rows.query[to] = batch.joint + (row * (model.heads + 2 * model.kv_heads) + head) * size;
        if (call.is_split) {
            const std::int64_t part = parts[to] = call.parts.at(model, batch, task.feed, task.first, i / groups, head);
            rows.mixed[to] = call.parts.mixed.data() + part * size;
            rows.total[to] = &call.parts.totals[part];
            rows.maximum[to] = &call.parts.maxima[part];
        } else {
            rows.mixed[to] = batch.mixed + (row * model.heads + head) * size;
            rows.total[to] = batch.totals + row * model.heads + head;
            rows.maximum[to] = batch.maxima + row * model.heads + head;
        }
        rows.seen[to] = seen_by(store, feed.position + i / groups);
        rows.begun[to] = false;
    }
    const int place = batch.place_of_layer[index];
    const Span whole = part_of(task, 0, store.segment_count);
    if (whole.first < whole.end) {
        const int first = static_cast<int>(whole.first), count = static_cast<int>(whole.end - whole.first);
        if (model.cache_format == KAKEYA_BFLOAT16) {
            attend_rows<bfloat16>(store, first, count, place, model.kv_heads, task.kv_head, size, model.scaling, rows, *scratch);
        } else {
            attend_rows<float>(store, first, count, place, model.kv_heads, task.kv_head, size, model.scaling, rows, *scratch);
        }
    }
    const Span packed = part_of(task, store.segment_count, segments_of(store));
    if (packed.first < packed.end) {
        thread_local std::unique_ptr<PackedScratch> more = std::make_unique<PackedScratch>();
        for (int i = 0; i < rows.count; ++i) {
            const std::int64_t query = feed.position + (task.block * BLOCK_ROWS + i) / groups;
            rows.seen[i] = Seen();
            rows.seen[i].add(store.sink, evicted_end(store, query));
        }
        attend_packed(*store.packed, static_cast<int>(packed.first), static_cast<int>(packed.end - packed.first), place, model.kv_heads, task.kv_head,
                      model.scaling, rows, *scratch, *more);
    }
    if (call.is_split)
        for (int i = 0; i < rows.count; ++i) call.parts.begun[parts[i]] = rows.begun[i];
}

// What all heads of a row found in single segments, in ascending order: as in one task.
void merge_parts(const Call& call, int index, int row) {
    const KakeyaModel& model = *call.model;
    const KakeyaBatch& batch = *call.batch;
    int number = 0;
    while (row >= batch.feeds[number].first_row + batch.feeds[number].rows) ++number;
    const KakeyaFeed& feed = batch.feeds[number];
    const int segments = segments_of(feed.stores[batch.group_of_layer[index]]), size = model.head_size;
    for (int head = 0; head < model.heads; ++head) {
        Rows rows;
        rows.mixed[0] = batch.mixed + (static_cast<std::int64_t>(row) * model.heads + head) * size;
        rows.total[0] = batch.totals + static_cast<std::int64_t>(row) * model.heads + head;
        rows.maximum[0] = batch.maxima + static_cast<std::int64_t>(row) * model.heads + head;
        rows.begun[0] = false;
        for (int segment = 0; segment < segments; ++segment) {
            const std::int64_t part = call.parts.at(model, batch, number, segment, row - feed.first_row, head);
            if (call.parts.begun[part])
                merge(rows, 0, size, call.parts.totals[part], call.parts.maxima[part], call.parts.mixed.data() + part * size);
        }
    }
}

// What a layer's first product takes of a row.
void prepare_row(const Call& call, const Inputs& normed, int index, int row) {
    const KakeyaModel& model = *call.model;
    const KakeyaLayer& layer = model.layer[index];
    const std::int64_t from = static_cast<std::int64_t>(row) * model.hidden;
    norm(call.batch->hidden + from, layer.input_norm, model.hidden, model.epsilon, call.batch->normed + from);
    round_for(layer.joint, normed, row);
}

// A layer's outputs of a row, where somebody wants to see them.
void keep_tapped(const KakeyaModel& model, const KakeyaBatch& batch, int index, int row) {
    if (!batch.tapped || batch.tap_of_layer[index] < 0) return;
    const std::int64_t hidden = model.hidden, place = static_cast<std::int64_t>(row) * batch.taps + batch.tap_of_layer[index];
    std::copy_n(batch.hidden + row * hidden, hidden, batch.tapped + place * hidden);
}

// Its inputs are prepared; behind it those of the next one are.
void one_layer(Call& call, int index) {
    const KakeyaModel& model = *call.model;
    const KakeyaBatch& batch = *call.batch;
    const KakeyaLayer& layer = model.layer[index];
    const int hidden = model.hidden, size = model.head_size, rows = batch.rows;
    const int widest = (model.heads + 2 * model.kv_heads) * size;
    const int phase = 1 + (index - call.first) * PHASES;
    const Inputs normed = call.rounded.of(batch.normed), mixed = call.rounded.of(batch.mixed), inner = call.rounded.of(batch.inner);
    if (call.phases & PROJECT) {
        product(call, phase, layer.joint, normed, rows, Written{batch.joint, widest}, [&](int row) { project_row(model, batch, layer, index, row); }, Coming(layer.output));
    }
    const bool merges = call.is_split && call.phases & ATTEND;
    const auto divide = [&](int row) {
        if (merges) merge_parts(call, index, row);
        float* own = batch.mixed + static_cast<std::int64_t>(row) * model.heads * size;
        for (int head = 0; head < model.heads; ++head) {
            const Lanes total = all(batch.totals[static_cast<std::int64_t>(row) * model.heads + head]);
            for (int d = 0; d < size; d += LANES) store(own + head * size + d, load(own + head * size + d) / total);
        }
        round_for(layer.output, mixed, row);
    };
    if (call.phases & ATTEND) {
        const std::vector<int>& ends = call.is_split ? call.part_ends[batch.group_of_layer[index]] : call.block_ends;
        taken(call, phase + 2, ends[batch.feed_count - 1], [&](int task) { attend_block(call, index, task); });
        if (!(call.phases & FINISH)) {
            call.barrier.meet([] {}, [] {});
            if (call.is_split) rows_then(call, phase + 3, rows, [&](int row) { merge_parts(call, index, row); });
        }
    }
    if (!(call.phases & FINISH)) return;
    rows_then(call, phase + 3, rows, divide, Coming(layer.output));
    const auto added = [&](int row, int panel, const Lanes(&found)[WIDE]) {
        float* to = batch.hidden + static_cast<std::int64_t>(row) * hidden + panel * PANEL;
        for (int lane = 0; lane < WIDE && panel * PANEL + lane * LANES < hidden; ++lane)
            store(to + lane * LANES, load(to + lane * LANES) + found[lane]);
    };
    product(call, phase + 4, layer.output, mixed, rows, added, [&](int row) {
        const std::int64_t from = static_cast<std::int64_t>(row) * hidden;
        norm(batch.hidden + from, layer.middle_norm, hidden, model.epsilon, batch.normed + from);
        round_for(layer.gate_up, normed, row);
    }, Coming(layer.gate_up));
    const auto opened = [&](int row, int panel, const Lanes(&found)[WIDE]) {
        store(batch.inner + static_cast<std::int64_t>(row) * model.inner + panel * LANES, gated(found[0], found[1]));
    };
    product(call, phase + 6, layer.gate_up, normed, rows, opened, [&](int row) { round_for(layer.down, inner, row); }, Coming(layer.down));
    const bool is_last = index + 1 == call.end;
    product(call, phase + 8, layer.down, inner, rows, added, [&](int row) {
        keep_tapped(model, batch, index, row);
        if (!is_last) prepare_row(call, normed, index + 1, row);
    }, is_last ? Coming() : Coming(model.layer[index + 1].joint));
}

void layers_job(void* context, unsigned) {
    Call& call = *static_cast<Call*>(context);
    if (call.phases & PROJECT) {
        const Inputs normed = call.rounded.of(call.batch->normed);
        rows_then(call, 0, call.batch->rows, [&](int row) { prepare_row(call, normed, call.first, row); });
    }
    for (int index = call.first; index < call.end; ++index) one_layer(call, index);
}

void logits_job(void* context, unsigned) {
    Call& call = *static_cast<Call*>(context);
    const KakeyaModel& model = *call.model;
    const Inputs normed = call.rounded.of(call.batch->normed);
    rows_then(call, 0, call.rows, [&](int row) {
        const std::int64_t hidden = model.hidden;
        norm(call.batch->hidden + call.chosen[row] * hidden, model.last_norm, model.hidden, model.epsilon, call.batch->normed + row * hidden);
        round_for(model.head, normed, row);
        if (call.preview) call.preview->prepare(row, call.batch->normed + row * hidden);
    });
    const std::int64_t width = static_cast<std::int64_t>(panels(model.head)) * PANEL;
    const Written written{call.outputs, width};
    if (!call.preview) {
        product(call, 1, model.head, normed, call.rows, written, [](int) {});
        return;
    }
    Preview& preview = *call.preview;
    shared_out(call, 1, preview.panel_count(), [&](int panel) { preview.look(panel); }, [](int) {});
    rows_then(call, 2, call.rows, [&](int row) {
        preview.choose(row);
        std::fill_n(call.outputs + row * width, width, -INFINITY);
    });
    const auto compute = [&](int task) {
        const int row = task / preview.kept();
        panel_of_row(model.head, normed, row, preview.chosen(row, task % preview.kept()), written);
    };
    shared_out(call, 3, call.rows * preview.kept(), compute, [](int) {});
}

void product_job(void* context, unsigned) {
    Call& call = *static_cast<Call*>(context);
    const Inputs inputs = call.rounded.of(call.inputs);
    const std::int64_t width = static_cast<std::int64_t>(panels(*call.matrix)) * PANEL;
    rows_then(call, 0, call.rows, [&](int row) { round_for(*call.matrix, inputs, row); });
    product(call, 1, *call.matrix, inputs, call.rows, Written{call.outputs, width}, [](int) {});
}

void run(void* workers, Call& call, int threads, void (*job)(void*, unsigned)) {
    call.barrier.begin(static_cast<unsigned>(threads));
    static_cast<Workers*>(workers)->run(static_cast<unsigned>(threads), job, &call);
}

}  // namespace
}  // namespace kakeya

extern "C" {

void kakeya_layers(void* workers, const KakeyaModel* model, const KakeyaBatch* batch, std::int32_t first,
                   std::int32_t end, std::int32_t phases, std::int32_t threads) {
    const std::int64_t widest = std::max({model->hidden, model->heads * model->head_size, model->inner});
    kakeya::Call call(1 + static_cast<std::size_t>(end - first) * kakeya::PHASES, batch->rows, widest);
    call.model = model;
    call.batch = batch;
    call.first = first;
    call.end = end;
    call.phases = phases;
    int tasks = 0;
    for (int feed = 0; feed < batch->feed_count; ++feed) {
        tasks += kakeya::blocks_of(*model, batch->feeds[feed]) * model->kv_heads;
        call.block_ends.push_back(tasks);
    }
    // How many groups of layers there are is told by the layers of this call.
    int groups = 0;
    for (int index = first; index < end; ++index) groups = std::max(groups, batch->group_of_layer[index] + 1);
    call.is_split = phases & kakeya::ATTEND && threads > 1 && tasks < kakeya::TURNS * threads;
    if (call.is_split) {
        call.parts.make(*model, *batch, groups);
        for (int group = 0; group < groups; ++group) {
            int parts = 0;
            call.part_ends.emplace_back();
            for (int feed = 0; feed < batch->feed_count; ++feed) {
                parts += kakeya::blocks_of(*model, batch->feeds[feed]) * model->kv_heads * kakeya::segments_of(batch->feeds[feed].stores[group]);
                call.part_ends.back().push_back(parts);
            }
        }
    }
    kakeya::run(workers, call, threads, kakeya::layers_job);
}

void kakeya_logits(void* workers, const KakeyaModel* model, const KakeyaPreview* preview, const KakeyaBatch* batch,
                   const std::int32_t* rows, std::int32_t count, float* logits, std::int32_t threads) {
    kakeya::Call call(4, count, model->hidden);
    std::unique_ptr<kakeya::Preview> own;
    if (preview) own = std::make_unique<kakeya::Preview>(*preview, count);
    call.preview = own.get();
    call.model = model;
    call.batch = batch;
    call.chosen = rows;
    call.outputs = logits;
    kakeya::run(workers, call, threads, kakeya::logits_job);
}

void kakeya_product(void* workers, const KakeyaMatrix* matrix, const float* inputs, std::int32_t rows, float* outputs,
                    std::int32_t threads) {
    kakeya::Call call(3, rows, matrix->inputs);
    call.matrix = matrix;
    call.inputs = inputs;
    call.outputs = outputs;
    kakeya::run(workers, call, threads, kakeya::product_job);
}

void kakeya_rows(const KakeyaMatrix* matrix, const std::int64_t* ids, std::int64_t count, float* rows) {
    for (std::int64_t i = 0; i < count; ++i) kakeya::row_of(*matrix, ids[i], rows + i * matrix->inputs);
}

void kakeya_unpack(void* workers, const KakeyaGrid* grid, const std::uint8_t* packed, std::int64_t stride,
                   std::int64_t tiles, void* numbers, std::int32_t threads) {
    kakeya::UnpackCall call{grid, packed, stride, tiles, numbers};
    static_cast<kakeya::Workers*>(workers)->run(static_cast<unsigned>(threads), kakeya::unpack_job, &call);
}

std::int32_t kakeya_pack(void* workers, const KakeyaGrid* grid, const void* numbers, std::int64_t tiles,
                         std::uint8_t* packed, std::int64_t stride, std::int32_t threads) {
    kakeya::PackCall call{grid, numbers, tiles, packed, stride};
    static_cast<kakeya::Workers*>(workers)->run(static_cast<unsigned>(threads), kakeya::pack_job, &call);
    return call.refused;
}

void kakeya_attend(void* workers, const KakeyaRead* read, std::int32_t threads) {
    kakeya::ReadCall call(*read);
    kakeya::Workers& own = *static_cast<kakeya::Workers*>(workers);
    own.run(static_cast<unsigned>(threads), kakeya::attend_job, &call);
    call.next = 0;
    // Little is left: one thread merges faster than others wake.
    kakeya::merge_job(&call, 0);
}

void* kakeya_workers() { return new kakeya::Workers(); }

void kakeya_free_workers(void* workers) { delete static_cast<kakeya::Workers*>(workers); }

std::int32_t kakeya_version() { return kakeya::VERSION; }
}
