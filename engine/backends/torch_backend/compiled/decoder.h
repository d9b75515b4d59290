// What Python and the compiled decoder tell each other: plain structs, mirrored by structs.py.
//
// All numbers that are computed are float32. Pointers are the caller's, and stay while they are
// used; nothing is allocated here but scratch of the threads.

#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

extern "C" {

// Weights [columns, rows of the product's input], laid out in panels of 32 columns: a panel has,
// for each input k, its 32 weights side by side. Columns are padded with zeros to whole panels.
// Of pairs, bfloat16 numbers whose inputs are rounded to such too, it has them for each two inputs:
// columns side by side, both weights of each. Of whole numbers a panel is blocks, one for each 32
// inputs: see product.h; of fine ones the same, by inputs of fifteen bits, not of eight.
enum KakeyaFormat : std::int32_t { KAKEYA_FLOAT32 = 0, KAKEYA_BFLOAT16 = 1, KAKEYA_INT8 = 2, KAKEYA_INT4 = 3, KAKEYA_PAIRS = 4, KAKEYA_INT2 = 5, KAKEYA_FINE_INT8 = 6, KAKEYA_FINE_INT4 = 7 };

struct KakeyaMatrix {
    const void* panels;
    const float* bias;  // [columns, padded], or null
    std::int32_t inputs, columns;
    std::int32_t format;
};

struct KakeyaLayer {
    KakeyaMatrix joint;    // queries, keys, values: one after the other
    KakeyaMatrix output;
    KakeyaMatrix gate_up;  // a panel has 16 gates, then the 16 ups that go with them
    KakeyaMatrix down;
    const float* input_norm;   // [hidden]
    const float* middle_norm;  // [hidden]
    const float* query_norm;   // [head_size], or null
    const float* key_norm;     // [head_size], or null
};

struct KakeyaModel {
    std::int32_t layers, hidden, heads, kv_heads, head_size, inner;
    std::int32_t cache_format;  // of keys and values in the caches
    float epsilon, scaling;
    const KakeyaLayer* layer;
    const float* last_norm;  // [hidden]
    KakeyaMatrix head;
};

// A head in few bits, of the same panels, as two of other inputs whose products are added: the first has those
// `order` names first. Logits are computed in the `kept` panels where its own are the largest, 0 < kept <= panels.
struct KakeyaPreview {
    KakeyaMatrix large, rest;
    const std::int32_t* order;  // [large.inputs + rest.inputs]
    std::int32_t kept;
};

// Key slots of one segment of a cache: for each of its layers keys, then values
// [kv_heads, slots, head_size].
struct KakeyaSegment {
    void* numbers;
    std::int32_t slots;
};

// How a grid packed tiles; see engine/codecs/grid_codec.py. `rotation` is the channels that are
// rotated together, 0 for none; `head_size` and the numbers of a `group` are multiples of 16.
struct KakeyaGrid {
    std::int32_t head_size, bits, group, rotation;
    std::int32_t is_by_channel, balances;
    std::int32_t is_narrow;  // the numbers are bfloat16, else float32
};

// Segments of packed tiles: of each layer and K/V head [tiles, tile_bytes], a tile's keys, of
// `key_bytes`, then its values. Keys are packed by channel, values by position.
struct KakeyaPacked {
    KakeyaGrid keys, values;
    const KakeyaSegment* segments;
    std::int32_t segment_count;
    std::int64_t key_bytes, tile_bytes;
};

// Positions of one group of layers of a cache, see engine/contracts/positions.py. `ring` is 0 for
// position p in slot p - `origin`; else slot p < sink is p, others go round in `ring` slots. A
// query at i sees j <= i with (j < sink or j >= i - window + 1, rounded down to a multiple of
// `tile`), and j > i - reach. What else it sees from `sink` on is in `packed`, if it is not null.
struct KakeyaStore {
    const KakeyaSegment* segments;
    std::int32_t segment_count;
    std::int32_t layers;  // of the group, in each segment
    std::int64_t origin, sink, window, ring, reach, tile;
    const KakeyaPacked* packed;
};

struct KakeyaFeed {
    const KakeyaStore* stores;  // by group
    std::int32_t first_row, rows;
    std::int64_t position;  // of its first row
};

struct KakeyaBatch {
    const KakeyaFeed* feeds;
    std::int32_t feed_count, rows;
    const std::int32_t* group_of_layer;  // [layers]
    const std::int32_t* place_of_layer;  // [layers]: its index within the group
    const float* cosines;  // [rows, head_size]
    const float* sines;    // [rows, head_size]; those of a head's first half are negative
    float* hidden;         // [rows, hidden]: embeddings, then the layers' outputs
    float* normed;         // [rows, hidden]
    float* joint;          // [rows, (heads + 2 kv_heads) * head_size]: rotated queries first
    float* mixed;          // [rows, heads * head_size]: weighted values, not divided yet
    float* totals;         // [rows, heads]: sums of weights
    float* maxima;         // [rows, heads]
    float* inner;          // [rows, inner]
    const std::int32_t* tap_of_layer;  // [layers]: where in `tapped` its outputs go, below 0 for nowhere
    std::int32_t taps;
    float* tapped;  // [rows, taps, hidden]; null without taps
};

// The layers `first` .. `end` - 1, or phases of them: 1 projects and writes keys and values,
// 2 attends to what the caches have, 4 does the rest of the layer.
void kakeya_layers(void* workers, const KakeyaModel* model, const KakeyaBatch* batch, std::int32_t first,
                   std::int32_t end, std::int32_t phases, std::int32_t threads);

// The logits [count, padded columns of the head] of the hidden states of `rows`: of all panels, or if there
// is a `preview` of those that it keeps, and -inf in the others.
void kakeya_logits(void* workers, const KakeyaModel* model, const KakeyaPreview* preview, const KakeyaBatch* batch,
                   const std::int32_t* rows, std::int32_t count, float* logits, std::int32_t threads);

// The product [rows, padded columns] of inputs [rows, matrix.inputs].
void kakeya_product(void* workers, const KakeyaMatrix* matrix, const float* inputs, std::int32_t rows, float* outputs,
                    std::int32_t threads);

// The weights [count, matrix.inputs] of the outputs `ids`.
void kakeya_rows(const KakeyaMatrix* matrix, const std::int64_t* ids, std::int64_t count, float* rows);

// The numbers [tiles, 64, head_size] of packed tiles, each `stride` bytes behind the one before.
void kakeya_unpack(void* workers, const KakeyaGrid* grid, const std::uint8_t* packed, std::int64_t stride,
                   std::int64_t tiles, void* numbers, std::int32_t threads);

// The other way: numbers [tiles, 64, head_size] as packed tiles of `stride` bytes each. 0, or why not:
// 1 for numbers that are not finite, 2 for such as scales cannot hold.
std::int32_t kakeya_pack(void* workers, const KakeyaGrid* grid, const void* numbers, std::int64_t tiles,
                         std::uint8_t* packed, std::int64_t stride, std::int32_t threads);

// Rows [kv_heads, groups * queries, head_size] that attend to one layer's segments; query q of each
// group sees the slots `firsts[q]` .. `ends[q]` - 1. Segments are those of `packed`, or if that is null
// keys [kv_heads, slots, head_size] of `format`, with `values` likewise, and head_size is a multiple of
// 32. What is found of each is not divided yet; where nothing is seen, `totals` and `mixed` are 0 and
// `maxima` stay as they are.
struct KakeyaRead {
    const KakeyaPacked* packed;
    const KakeyaSegment* segments;
    const void* const* values;
    std::int32_t segment_count, head_size, format;
    std::int32_t kv_heads, groups, queries;
    float scaling;
    const float* rows;
    const std::int64_t* firsts;
    const std::int64_t* ends;
    float* mixed;   // [kv_heads, groups * queries, head_size]
    float* totals;  // [kv_heads, groups * queries]
    float* maxima;  // [kv_heads, groups * queries]
};

void kakeya_attend(void* workers, const KakeyaRead* read, std::int32_t threads);

void* kakeya_workers();
void kakeya_free_workers(void* workers);
std::int32_t kakeya_version();
}

#pragma GCC visibility pop
