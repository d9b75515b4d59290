// Memory that is asked for before it is needed.
//
// Processors read ahead by themselves, but not beyond the page of 4 KiB that they are in, and the later
// the more is computed with what came. What products reach of the memory's speed: scripts/bench/products.py, decoding
// scripts/bench/decode.py, packed tiles scripts/bench/packed_full.py.

#pragma once

#include <cstdint>

namespace kakeya {

constexpr int LINE = 64;

// Into the second cache and the first.
inline void ask(const void* from) { __builtin_prefetch(from); }

// Into the first cache alone: what is read once more only when all other weights were would drive the rest out of the others.
inline void ask_once(const void* from) { __builtin_prefetch(from, 0, 0); }

// Into the second cache: what is large would drive out of the first what is used meanwhile.
inline void ask_all(const void* from, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch(static_cast<const char*>(from) + i, 0, 2);
}

// Lines that are asked for one after the other, one in so many turns.
class Ahead {
  public:
    Ahead(const void* from, int turns, bool is_read_once) : next_(static_cast<const char*>(from)), turns_(turns), is_read_once_(is_read_once) {}

    void more() {
        if (--wait_ > 0) return;
        wait_ = turns_;
        if (is_read_once_)
            ask_once(next_);
        else
            ask(next_);
        next_ += LINE;
    }

  private:
    const char* next_;
    int turns_, wait_ = 1;
    bool is_read_once_;
};

}  // namespace kakeya
