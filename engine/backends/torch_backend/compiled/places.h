// On which processors the threads of a forward run: each on one of its own.
//
// Linux may wake a thread on the processor of the one that wakes it, which goes on: it waits there
// for milliseconds while another processor is idle, so that forwards with two threads were half as
// fast as with one (measured on two cores). So threads are kept off the processor of the one that
// begins a forward, and one that finds another of its forward on its own leaves it.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <sys/types.h>
#include <unistd.h>
#endif

namespace kakeya {

#if defined(__linux__)

class Places {
  public:
    Places() { is_known_ = sched_getaffinity(0, sizeof allowed_, &allowed_) == 0; }

    // The calling thread begins a forward with `others`, which sleep.
    void begin(const std::vector<pid_t>& others) {
        const int own = sched_getcpu();
        taken_.store(bit_of(own), std::memory_order_relaxed);
        if (!is_known_ || own < 0 || (own == left_free_ && others.size() == told_)) return;
        left_free_ = own;
        told_ = others.size();
        cpu_set_t free = allowed_;
        CPU_CLR(own, &free);
        if (CPU_COUNT(&free) == 0) return;
        // One that has ended meanwhile, as in the child of a fork, is not to be told.
        for (const pid_t other : others) sched_setaffinity(other, sizeof free, &free);
    }

    static pid_t of_this_thread() { return gettid(); }

    // Another one joins it.
    void join() {
        const std::uint64_t own = bit_of(sched_getcpu());
        const std::uint64_t others = taken_.fetch_or(own, std::memory_order_acq_rel);
        if (!(others & own) || !is_known_) return;
        cpu_set_t free;
        CPU_ZERO(&free);
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed_) && !(others & bit_of(cpu))) CPU_SET(cpu, &free);
        // With more threads than processors, some share one.
        if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return;
        taken_.fetch_or(bit_of(sched_getcpu()), std::memory_order_acq_rel);
    }

  private:
    // Those beyond 64 are not told apart, and never taken.
    static std::uint64_t bit_of(int cpu) { return cpu >= 0 && cpu < 64 ? std::uint64_t{1} << cpu : 0; }

    cpu_set_t allowed_;
    bool is_known_ = false;
    int left_free_ = -1;
    std::size_t told_ = 0;
    std::atomic<std::uint64_t> taken_{0};
};

#else

class Places {
  public:
    void begin(const std::vector<int>&) {}
    static int of_this_thread() { return 0; }
    void join() {}
};

#endif

}  // namespace kakeya
