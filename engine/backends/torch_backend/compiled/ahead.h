// Memory that is asked for before it is needed.
//
// Processors read ahead by themselves, but not beyond the page of 4 KiB that they are in, and the later
// the more is computed with what came: products of one row with weights gain where that is much, not of float32
// numbers, and nothing with AVX-512. What products reach of the memory's speed: scripts/bench/products.py, decoding
// scripts/bench/decode.py, packed tiles scripts/bench/packed_full.py.

#pragma once

#include <cstdint>

namespace kakeya {

constexpr int LINE = 64;

// Into the second cache and the first.
inline void ask(const void* from) { __builtin_prefetch(from); }

// Into the second cache: what is large would drive out of the first what is used meanwhile.
inline void ask_all(const void* from, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch(static_cast<const char*>(from) + i, 0, 2);
}

// Lines that are asked for one after the other, one in so many turns.
class Ahead {
  public:
    Ahead(const void* from, int turns) : next_(static_cast<const char*>(from)), turns_(turns) {}

    void more() {
        if (--wait_ > 0) return;
        wait_ = turns_;
        ask(next_);
        next_ += LINE;
    }

  private:
    const char* next_;
    int turns_, wait_ = 1;
};

}  // namespace kakeya
