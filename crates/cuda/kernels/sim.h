// The simulated device: what a kernel sees of CUDA, in C++ on the host.
//
// The threads of a block are fibers. A fiber runs until it ends or waits: at a barrier of its block, or for the lanes of its warp. When
// none can run, those that wait for the same thing go on together; where two threads wait at different places, the launch ends
// with a message. Threads and blocks run in an order that the launch names. Shared memory holds NaN when a block begins.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define DEVICE inline __attribute__((always_inline))
#define OUTLINED static __attribute__((noinline))
#define RESTRICT __restrict__
#define GLOBAL static

// A kernel takes one struct by value; the driver hands its bytes over.
#define KERNEL(name, Args, threads, ...)                                                               \
    static void name##_body(const Args& args);                                                         \
    extern "C" void name(const void* bytes) { name##_body(*static_cast<const Args*>(bytes)); }         \
    extern "C" const unsigned name##_args_bytes = sizeof(Args);                                        \
    extern "C" const unsigned name##_threads = threads;                                                \
    static void name##_body(const Args& args)

// The shared memory of a block, one struct.
#define SHARED(Type, name) Type& name = *static_cast<Type*>(sim::shared(sizeof(Type)))
// The same, of which the launch says how much there is.
#define DYNAMIC_SHARED(Type, name) Type& name = *static_cast<Type*>(sim::given(sizeof(Type)))

struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

namespace sim {

enum class Wait { nothing, block, warp };

struct Copy {
    char* to;
    const char* from;
    int bytes, filled;
};

struct Fiber {
    void* stack = nullptr;   // where it goes on
    char* memory = nullptr;  // its stack
    bool ended = false;
    Wait wait = Wait::nothing;
    int line = 0;
    unsigned exchanges = 0;
    // asynchronous copies that were issued, by groups that were closed
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> closed;
};

// What a lane of a warp holds of two matrices.
struct Fragments {
    float a[4], b[2];
};

struct Launch {
    uint3 grid, block, block_index;
    std::vector<Fiber> fibers;
    std::vector<char> shared;
    size_t given_bytes = 0;  // of shared memory, by the launch
    std::vector<uint64_t> exchanged[2];
    std::vector<Fragments> fragments[2];
    void (*kernel)(const void*) = nullptr;
    const void* args = nullptr;
    void* scheduler = nullptr;
    unsigned current = 0;
    char* message = nullptr;
    size_t message_bytes = 0;
    bool failed = false;
    int order = 0;
    uint64_t seed = 0;

    ~Launch() {
        for (const Fiber& f : fibers) std::free(f.memory);
    }
};

inline Launch*& launch() {
    static thread_local Launch* of_this_thread = nullptr;
    return of_this_thread;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t STACK_BYTES = 256 * 1024;  // its frames are several times as large
#else
constexpr size_t STACK_BYTES = 64 * 1024;
#endif
constexpr size_t SHARED_BYTES = 227 * 1024;
constexpr unsigned WARP = 32;

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t bytes);
extern "C" void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* bytes);
extern "C" void __asan_unpoison_memory_region(const volatile void* memory, size_t bytes);
inline void leaving(void** save, const void* bottom, size_t bytes) {
    __sanitizer_start_switch_fiber(save, bottom, bytes);
}
inline void arrived(void* save, const void** bottom, size_t* bytes) {
    __sanitizer_finish_switch_fiber(save, bottom, bytes);
}
// Functions that never returned have left their marks on a stack.
inline void renew(char* stack) { __asan_unpoison_memory_region(stack, STACK_BYTES); }
#else
inline void renew(char*) {}
inline void leaving(void**, const void*, size_t) {}
inline void arrived(void*, const void**, size_t*) {}
#endif

// Where the host's own stack lies, for the sanitizer.
inline const void*& host_bottom() {
    static thread_local const void* bottom = nullptr;
    return bottom;
}
inline size_t& host_bytes() {
    static thread_local size_t bytes = 0;
    return bytes;
}

// Saves the registers that a call keeps on this stack, and goes on with what another stack has saved.
extern "C" void tiled_sim_switch(void** from, void* to) __attribute__((visibility("hidden")));
#if defined(__x86_64__)
asm(R"(
.text
.hidden tiled_sim_switch
.globl tiled_sim_switch
tiled_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq
)");
constexpr size_t SAVED_WORDS = 6;
constexpr size_t RETURN_WORD = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.hidden tiled_sim_switch
.globl tiled_sim_switch
tiled_sim_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
constexpr size_t SAVED_WORDS = 20;
constexpr size_t RETURN_WORD = 11;
#else
#error "the simulated device switches stacks on x86-64 and AArch64 alone"
#endif

inline Fiber& fiber() { return launch()->fibers[launch()->current]; }

// Goes back to the scheduler until this fiber may go on.
inline void yield() {
    Launch& l = *launch();
    Fiber& own = l.fibers[l.current];
    void* save = nullptr;
    leaving(own.ended ? nullptr : &save, host_bottom(), host_bytes());
    tiled_sim_switch(&own.stack, l.scheduler);
    arrived(save, nullptr, nullptr);
}

// Ends the launch with a message; the other fibers are dropped where they are.
[[noreturn]] inline void fail(const char* what, int line) {
    Launch& l = *launch();
    std::snprintf(l.message, l.message_bytes, "%s at line %d, block [%u, %u, %u], thread %u", what, line,
                  l.block_index.x, l.block_index.y, l.block_index.z, l.current);
    l.failed = true;
    l.fibers[l.current].ended = true;
    yield();
    std::abort();
}

inline void start() {
    arrived(nullptr, &host_bottom(), &host_bytes());
    Launch& l = *launch();
    l.kernel(l.args);
    bool is_under_way = !fiber().open.empty();
    for (const auto& group : fiber().closed) is_under_way |= !group.empty();
    if (is_under_way) fail("a thread ended before its copies had come", 0);
    fiber().ended = true;
    yield();
}

inline void prepare(Fiber& f) {
    if (f.memory == nullptr) f.memory = static_cast<char*>(std::malloc(STACK_BYTES));
    renew(f.memory);
    auto top = (reinterpret_cast<uintptr_t>(f.memory) + STACK_BYTES) & ~uintptr_t{15};
    // as after a call: the stack is eight bytes off a multiple of sixteen when `start` begins
    auto* words = reinterpret_cast<void**>(top) - SAVED_WORDS - 4;
    for (size_t i = 0; i < SAVED_WORDS + 4; ++i) words[i] = nullptr;
#if defined(__x86_64__)
    words = reinterpret_cast<void**>(top) - SAVED_WORDS - 2;
#endif
    words[RETURN_WORD] = reinterpret_cast<void*>(&start);
    f.stack = words;
    f.ended = false;
    f.wait = Wait::nothing;
    f.line = 0;
    f.exchanges = 0;
    f.open.clear();
    f.closed.clear();
}

inline uint64_t random(uint64_t& seed) {
    seed += 0x9e3779b97f4a7c15u;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// The numbers below `count` in the order of a launch: 0 forward, 1 backward, 2 shuffled.
inline void arrange(std::vector<unsigned>& numbers, unsigned count, int order, uint64_t& seed) {
    numbers.resize(count);
    for (unsigned i = 0; i < count; ++i) numbers[i] = order == 1 ? count - 1 - i : i;
    if (order != 2) return;
    for (unsigned i = count; i > 1; --i) {
        std::swap(numbers[i - 1], numbers[random(seed) % i]);
    }
}

// Lets a group go on whose live fibers all wait for this at one place. False where one of them does not.
inline bool release(Launch& l, unsigned begin, unsigned end, Wait wait) {
    int line = 0;
    unsigned waiting = 0;
    for (unsigned i = begin; i < end; ++i) {
        const Fiber& f = l.fibers[i];
        if (f.ended) {
            if (wait == Wait::block) return false;
            continue;
        }
        if (f.wait != wait || (waiting > 0 && f.line != line)) return false;
        line = f.line;
        ++waiting;
    }
    for (unsigned i = begin; i < end; ++i) l.fibers[i].wait = Wait::nothing;
    return waiting > 0;
}

inline void run_block(Launch& l, unsigned threads, std::vector<unsigned>& order) {
    std::memset(l.shared.data(), 0xff, l.shared.size());
    for (unsigned i = 0; i < threads; ++i) prepare(l.fibers[i]);
    for (;;) {
        arrange(order, threads, l.order, l.seed);
        bool all_ended = true;
        for (unsigned i : order) {
            Fiber& f = l.fibers[i];
            if (f.ended || f.wait != Wait::nothing) continue;
            l.current = i;
            void* save = nullptr;
            leaving(&save, f.memory, STACK_BYTES);
            tiled_sim_switch(&l.scheduler, f.stack);
            arrived(save, nullptr, nullptr);
            if (l.failed) return;
        }
        bool released = false;
        for (unsigned warp = 0; warp < threads; warp += WARP) {
            released |= release(l, warp, warp + WARP < threads ? warp + WARP : threads, Wait::warp);
        }
        for (unsigned i = 0; i < threads; ++i) all_ended &= l.fibers[i].ended;
        if (all_ended) return;
        if (!released && !release(l, 0, threads, Wait::block)) {
            unsigned first = 0;
            while (l.fibers[first].ended) ++first;
            unsigned other = 0;
            while (other < threads && !l.fibers[other].ended &&
                   l.fibers[other].wait == l.fibers[first].wait && l.fibers[other].line == l.fibers[first].line) {
                ++other;
            }
            std::snprintf(l.message, l.message_bytes,
                          "threads %u and %u of block [%u, %u, %u] wait at different places: lines %d and %d%s", first,
                          other, l.block_index.x, l.block_index.y, l.block_index.z, l.fibers[first].line,
                          other < threads ? l.fibers[other].line : 0,
                          other < threads && l.fibers[other].ended ? " (ended)" : "");
            l.failed = true;
            return;
        }
    }
}

// Shared memory of a block; one struct of a kernel.
inline void* shared(size_t bytes) {
    Launch& l = *launch();
    if (bytes + 128 > l.shared.size()) fail("too much shared memory", 0);
    auto at = reinterpret_cast<uintptr_t>(l.shared.data());
    return reinterpret_cast<void*>((at + 127) & ~uintptr_t{127});
}

inline void* given(size_t bytes) {
    if (bytes != launch()->given_bytes) fail("another size of shared memory than the launch gives", 0);
    return shared(bytes);
}

inline void barrier(Wait wait, int line) {
    Fiber& own = fiber();
    own.wait = wait;
    own.line = line;
    yield();
}

// The word that another lane of the warp gives.
inline uint64_t exchange(uint64_t word, unsigned from, int line) {
    Launch& l = *launch();
    const unsigned own = l.current, side = fiber().exchanges++ & 1;
    l.exchanged[side][own] = word;
    barrier(Wait::warp, line);
    const unsigned other = (own & ~(WARP - 1)) + (from & (WARP - 1));
    return other < l.exchanged[side].size() ? l.exchanged[side][other] : word;
}

template <typename T>
inline T shuffled(T value, unsigned from, int line) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a word at most");
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    word = exchange(word, from, line);
    std::memcpy(&value, &word, sizeof(T));
    return value;
}

// What all lanes of a warp hold, which stays until the next but one.
inline const Fragments* gathered(const float (&a)[4], const float (&b)[2], int line) {
    Launch& l = *launch();
    const unsigned own = l.current, side = fiber().exchanges++ & 1;
    Fragments& mine = l.fragments[side][own];
    std::memcpy(mine.a, a, sizeof a);
    std::memcpy(mine.b, b, sizeof b);
    barrier(Wait::warp, line);
    return &l.fragments[side][own & ~(WARP - 1)];
}

inline uint3 thread_index() {
    const Launch& l = *launch();
    const unsigned t = l.current;
    return {t % l.block.x, t / l.block.x % l.block.y, t / (l.block.x * l.block.y)};
}

inline void land(const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
        if (copy.bytes > 0) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
        std::memset(copy.to + copy.bytes, 0, static_cast<size_t>(copy.filled - copy.bytes));
    }
}

}  // namespace sim

#define threadIdx (sim::thread_index())
#define blockIdx (sim::launch()->block_index)
#define blockDim (sim::launch()->block)
#define gridDim (sim::launch()->grid)

#define __syncthreads() sim::barrier(sim::Wait::block, __LINE__)
#define __syncwarp() sim::barrier(sim::Wait::warp, __LINE__)
#define __shfl_sync(mask, value, lane) sim::shuffled(value, lane, __LINE__)
#define __shfl_xor_sync(mask, value, other) \
    sim::shuffled(value, (sim::launch()->current & (sim::WARP - 1)) ^ (other), __LINE__)
#define __shfl_down_sync(mask, value, by)                                                                     \
    sim::shuffled(value,                                                                                      \
                  (sim::launch()->current & (sim::WARP - 1)) + (by) < sim::WARP                               \
                      ? (sim::launch()->current & (sim::WARP - 1)) + (by)                                     \
                      : (sim::launch()->current & (sim::WARP - 1)),                                           \
                  __LINE__)

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline long long __double_as_longlong(double x) {
    long long bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline double __longlong_as_double(long long bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
// Fibers do not run at the same time.
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
    const unsigned long long before = *to;
    *to += value;
    return before;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
    const unsigned before = *to;
    *to += value;
    return before;
}
inline unsigned atomicOr(unsigned* to, unsigned value) {
    const unsigned before = *to;
    *to |= value;
    return before;
}
inline unsigned long long atomicOr(unsigned long long* to, unsigned long long value) {
    const unsigned long long before = *to;
    *to |= value;
    return before;
}

// Runs a kernel; where it fails, the message is written and the answer is not zero.
extern "C" int tiled_sim_launch(void (*kernel)(const void*), const void* args, const unsigned* grid,
                                const unsigned* block, unsigned shared_bytes, int order, uint64_t seed, char* message,
                                size_t message_bytes) {
    static thread_local sim::Launch l;
    static thread_local std::vector<unsigned> blocks, threads;
    sim::launch() = &l;
    l.grid = {grid[0], grid[1], grid[2]};
    l.block = {block[0], block[1], block[2]};
    l.kernel = kernel;
    l.args = args;
    l.message = message;
    l.message_bytes = message_bytes;
    l.failed = false;
    l.order = order;
    l.seed = seed;
    const unsigned count = block[0] * block[1] * block[2];
    if (l.fibers.size() < count) l.fibers.resize(count);
    l.given_bytes = shared_bytes;
    l.shared.resize((shared_bytes > 64 * 1024 ? shared_bytes : 64 * 1024) + 128);
    for (auto& words : l.exchanged) words.assign(count, 0);
    for (auto& fragments : l.fragments) fragments.assign(count, {});
    sim::arrange(blocks, grid[0] * grid[1] * grid[2], order, l.seed);
    for (unsigned b : blocks) {
        l.block_index = {b % grid[0], b / grid[0] % grid[1], b / (grid[0] * grid[1])};
        sim::run_block(l, count, threads);
        if (l.failed) return 1;
    }
    return 0;
}
