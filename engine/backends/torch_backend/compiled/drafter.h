// What Python and the compiled drafter tell each other, as decoder.h does: mirrored by draft_structs.py.
//
// A drafter of DFlash (arXiv:2602.06036) whose weights are whole numbers of eight bits. One of the
// first version has no taps: neither kernels nor bases are read.

#pragma once

#include <cstdint>

#include "decoder.h"

#pragma GCC visibility push(default)

extern "C" {

struct KakeyaDraftLayer {
    KakeyaMatrix joint;    // queries, keys, values: one after the other
    KakeyaMatrix output;
    KakeyaMatrix gate_up;  // a panel has 16 gates, then the 16 ups that go with them
    KakeyaMatrix down;
    // Of the convolutions around attention and around the MLP, [2, taps, groups] of a row: of the
    // sublayer's input, then of its output.
    KakeyaMatrix attention_deltas, mlp_deltas;
    const float* attention_base;  // [2, taps, hidden]
    const float* mlp_base;        // [2, taps, hidden]
    const float* input_norm;      // [hidden]
    const float* middle_norm;     // [hidden]
    const float* head_norm;       // [heads + kv_heads, head_size]; scores are scaled by the queries' part
    std::int32_t is_causal, window;  // which keys its rows see, see DraftLayerRule; 0 for any distance
};

struct KakeyaDrafter {
    std::int32_t layers, hidden, heads, kv_heads, head_size, inner;
    std::int32_t taps, group_size;  // `group_size` channels share a delta
    float epsilon;
    const KakeyaDraftLayer* layer;
    const float* last_norm;  // [hidden]
};

// A block behind its context. Of keys, then of values, `slots` has [layers, kv_heads, slot_count,
// head_size]: the context's from `first` on, and the block's own are put behind them, from `begin` on.
// Slots are read by sixteen: what is not seen counts for nothing, and is finite, also in the 15 slots
// behind the last.
struct KakeyaDraftBlock {
    std::int32_t rows;
    const float* cosines;  // [rows, head_size]
    const float* sines;    // [rows, head_size]; those of a head's first half are negative
    std::uint16_t* slots;  // bfloat16
    std::int64_t slot_count, first, begin;
    float* hidden;  // [rows, hidden]: embeddings, then what the head takes
};

void kakeya_draft(void* workers, const KakeyaDrafter* drafter, const KakeyaDraftBlock* block, std::int32_t threads);

// Ids [rows, count] of the largest logits of hidden states [rows, head.inputs], and those logits. The largest
// come first, of equal ones the smaller id.
void kakeya_candidates(void* workers, const KakeyaMatrix* head, const float* hidden, std::int32_t rows, std::int32_t count, std::int32_t* ids, float* logits,
                       std::int32_t threads);

// As decoder.h has them.
void* kakeya_workers();
void kakeya_free_workers(void* workers);
std::int32_t kakeya_version();
}

#pragma GCC visibility pop
