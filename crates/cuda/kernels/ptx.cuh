// PTX instructions, each with its meaning in C++ beside it.
#pragma once

#ifdef TILED_SIM

// Copies 16 bytes to shared memory, `valid` of them from global memory and zeros after; what is there until they are waited for is
// nothing.
DEVICE void copy_async_16(void* to, const void* from, int valid) {
    std::memset(to, 0xff, 16);
    sim::fiber().open.push_back({static_cast<char*>(to), static_cast<const char*>(from), valid, 16});
}

// The same of 4 or 8 bytes, all of them or zeros.
template <int bytes>
DEVICE void copy_async_small(void* to, const void* from, bool valid) {
    std::memset(to, 0xff, bytes);
    sim::fiber().open.push_back({static_cast<char*>(to), static_cast<const char*>(from), valid ? bytes : 0, bytes});
}

// The same of 16 bytes.
DEVICE void copy_async_whole(void* to, const void* from, bool valid) { copy_async_16(to, from, valid ? 16 : 0); }

// Closes the group of the copies so far.
DEVICE void copy_async_commit() {
    auto& f = sim::fiber();
    f.closed.push_back(std::move(f.open));
    f.open.clear();
}

// Waits until at most `left` of this thread's groups are under way.
template <int left>
DEVICE void copy_async_wait() {
    auto& f = sim::fiber();
    while (f.closed.size() > left) {
        sim::land(f.closed.front());
        f.closed.erase(f.closed.begin());
    }
}

#else

DEVICE void copy_async_16(void* to, const void* from, int valid) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(valid) : "memory");
}

template <int bytes>
DEVICE void copy_async_small(void* to, const void* from, bool valid) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile(
        "{ .reg .pred ignored; setp.eq.s32 ignored, %3, 0; cp.async.ca.shared.global [%0], [%1], %2, ignored; }" ::"r"(shared),
        "l"(from), "n"(bytes), "r"(static_cast<int>(valid))
        : "memory");
}

DEVICE void copy_async_whole(void* to, const void* from, bool valid) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile(
        "{ .reg .pred ignored; setp.eq.s32 ignored, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, ignored; }" ::"r"(shared),
        "l"(from), "r"(static_cast<int>(valid))
        : "memory");
}

DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int left>
DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

#endif

// Copies so many lanes to shared memory, or zeros.
template <int N, typename T>
DEVICE void copy_lanes(T* to, const T* from, bool valid) {
    if (N == 1) {
        copy_async_small<sizeof(T)>(to, from, valid);
        return;
    }
    constexpr int each = 16 / sizeof(T);
#pragma unroll
    for (int part = 0; part < N / each; ++part) copy_async_whole(to + part * each, from + part * each, valid);
}

// Copies lanes to shared memory, `valid` of them and zeros after.
template <typename T>
DEVICE void copy_some_lanes(T* to, const T* from, int valid) {
    constexpr int each = 16 / sizeof(T);
    if (LANES == each) {
        copy_async_16(to, from, valid * static_cast<int>(sizeof(T)));
        return;
    }
#pragma unroll
    for (int part = 0; part < LANES / each; ++part) {
        int own = valid - part * each;
        own = own < 0 ? 0 : own > each ? each : own;
        copy_async_16(to + part * each, own > 0 ? from + part * each : from, own * static_cast<int>(sizeof(T)));
    }
}
