// Tiles packed and unpacked by several threads.

#pragma once

#include <atomic>
#include <cstdint>

#include "decoder.h"
#include "pack.h"
#include "unpack.h"

namespace kakeya {

struct UnpackCall {
    const KakeyaGrid* grid;
    const std::uint8_t* packed;
    std::int64_t stride, tiles;
    void* numbers;
    std::atomic<std::int64_t> next{0};
};

template <class Number>
void unpack_tiles(UnpackCall& call) {
    Unpacking unpacking(*call.grid);
    const std::int64_t size = static_cast<std::int64_t>(TILE) * call.grid->head_size;
    for (std::int64_t tile = call.next++; tile < call.tiles; tile = call.next++)
        unpacking.unpack(call.packed + tile * call.stride, static_cast<Number*>(call.numbers) + tile * size);
}

inline void unpack_job(void* context, unsigned) {
    UnpackCall& call = *static_cast<UnpackCall*>(context);
    if (call.grid->is_narrow)
        unpack_tiles<bfloat16>(call);
    else
        unpack_tiles<float>(call);
}

struct PackCall {
    const KakeyaGrid* grid;
    const void* numbers;
    std::int64_t tiles;
    std::uint8_t* packed;
    std::int64_t stride;
    std::atomic<std::int64_t> next{0};
    std::atomic<std::int32_t> refused{PACKED};
};

template <class Number>
void pack_tiles(PackCall& call) {
    Packing packing(*call.grid);
    const std::int64_t size = static_cast<std::int64_t>(TILE) * call.grid->head_size;
    for (std::int64_t tile = call.next++; tile < call.tiles; tile = call.next++) {
        const Refusal found = packing.pack(static_cast<const Number*>(call.numbers) + tile * size, call.packed + tile * call.stride);
        if (found != PACKED) call.refused = found;
    }
}

inline void pack_job(void* context, unsigned) {
    PackCall& call = *static_cast<PackCall*>(context);
    if (call.grid->is_narrow)
        pack_tiles<bfloat16>(call);
    else
        pack_tiles<float>(call);
}

}  // namespace kakeya
