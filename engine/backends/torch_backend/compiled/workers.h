// Threads that share the phases of one forward.

#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "places.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kakeya {

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits spin so often, some 20 us, before they sleep: phases take about as long, and a
// machine whose cores are taken is not kept busy by waiting.
constexpr int SPINS = 1000;

// `meanwhile` takes no longer than a pause.
template <class Meanwhile>
inline void wait_while(const std::atomic<unsigned>& value, unsigned seen, const Meanwhile& meanwhile) {
    for (int spin = 0; spin < SPINS; ++spin) {
        if (value.load(std::memory_order_acquire) != seen) return;
        meanwhile();
        pause();
    }
    while (value.load(std::memory_order_acquire) == seen) value.wait(seen, std::memory_order_acquire);
}

// Where the threads of a forward meet between two phases.
class Barrier {
  public:
    void begin(unsigned threads) { threads_ = threads; }

    // The last one to come does what is to be done alone, before the others go on, who call `meanwhile` as they wait.
    template <class Alone, class Meanwhile>
    void meet(const Alone& alone, const Meanwhile& meanwhile) {
        if (threads_ == 1) {
            alone();
            return;
        }
        const unsigned seen = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
            alone();
            arrived_.store(0, std::memory_order_relaxed);
            round_.fetch_add(1, std::memory_order_release);
            round_.notify_all();
        } else {
            wait_while(round_, seen, meanwhile);
        }
    }

    unsigned threads() const { return threads_; }

  private:
    unsigned threads_ = 1;
    // Who waits reads a line of the cache that nobody writes until all have come.
    alignas(64) std::atomic<unsigned> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

class Workers {
  public:
    ~Workers() {
        job_ = nullptr;
        ++ending_;
        order_.fetch_add(1, std::memory_order_release);
        order_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    // Runs job(context, thread) in so many threads, the calling one among them. What takes that one
    // alone waits for nobody: several may at once.
    void run(unsigned threads, void (*job)(void*, unsigned), void* context) {
        if (threads <= 1) {
            job(context, 0);
            return;
        }
        std::lock_guard<std::mutex> one_at_a_time(mutex_);
        while (threads_.size() + 1 < threads) {
            const unsigned index = static_cast<unsigned>(threads_.size()) + 1;
            places_of_.push_back(0);
            threads_.emplace_back([this, index, seen = order_.load()] {
                places_of_[index - 1] = Places::of_this_thread();
                begun_.store(index, std::memory_order_release);
                begun_.notify_one();
                work(index, seen);
            });
            begun_.wait(index - 1, std::memory_order_acquire);
        }
        job_ = job;
        context_ = context;
        wanted_ = threads;
        places_.begin(places_of_);
        left_.store(static_cast<unsigned>(threads_.size()), std::memory_order_release);
        order_.fetch_add(1, std::memory_order_release);
        order_.notify_all();
        job(context, 0);
        for (unsigned left = left_.load(std::memory_order_acquire); left; left = left_.load(std::memory_order_acquire))
            wait_while(left_, left, [] {});
    }

  private:
    void work(unsigned index, unsigned seen) {
        for (;;) {
            wait_while(order_, seen, [] {});
            seen = order_.load(std::memory_order_acquire);
            if (ending_) return;
            if (index < wanted_) {
                places_.join();
                job_(context_, index);
            }
            left_.fetch_sub(1, std::memory_order_acq_rel);
            left_.notify_all();
        }
    }

    Places places_;
    std::vector<decltype(Places::of_this_thread())> places_of_;
    std::atomic<unsigned> begun_{0};
    std::mutex mutex_;
    std::vector<std::thread> threads_;
    void (*job_)(void*, unsigned) = nullptr;
    void* context_ = nullptr;
    unsigned wanted_ = 0;
    std::atomic<unsigned> order_{0};
    std::atomic<unsigned> left_{0};
    std::atomic<unsigned> ending_{0};
};

}  // namespace kakeya
