// PTX instructions, each with its meaning in C++ beside it.
#pragma once

#ifdef TILED_SIM

// Copies 16 bytes to shared memory, `valid` of them from global memory and zeros after; what is there until they are waited for is
// nothing.
DEVICE void copy_async_16(void* to, const void* from, int valid) {
    std::memset(to, 0xff, 16);
    sim::fiber().open.push_back({static_cast<char*>(to), static_cast<const char*>(from), valid, 16});
}

// The same of 4, 8 or 16 bytes, all of them or zeros; these stay in the cache of the multiprocessor. Nothing where it is not asked.
template <int bytes>
DEVICE void copy_async_small(void* to, const void* from, bool valid, bool is_asked = true) {
    if (!is_asked) return;
    std::memset(to, 0xff, bytes);
    sim::fiber().open.push_back({static_cast<char*>(to), static_cast<const char*>(from), valid ? bytes : 0, bytes});
}

// The same of 16 bytes, which do not stay there.
DEVICE void copy_async_whole(void* to, const void* from, bool valid, bool is_asked = true) {
    if (is_asked) copy_async_16(to, from, valid ? 16 : 0);
}

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

// The nearest number with ten bits after the point, of two alike the larger in magnitude.
DEVICE float to_tf32(float x) {
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return __uint_as_float((bits & 0x7fffffu) != 0 ? 0x7fc00000u : bits);
    return __uint_as_float((bits + 0x1000u) & ~0x1fffu);
}

// `sums += a·b` of a warp: 16 by 8 numbers times 8 by 8, of ten bits each. Lane l has of `a` the rows l/4 and 8 more, of these the columns
// l%4 and 4 more; of `b` the rows l%4 and 4 more, of these the column l/4; of the sums the rows l/4 and 8 more, of these the columns
// 2·(l%4) and the next. Sums are cut off, not rounded; how a GPU orders the nine terms is its own.
DEVICE void warp_multiply(float (&sums)[4], const float (&a)[4], float b0, float b1) {
    const float b[2] = {b0, b1};
    for (float x : {a[0], a[1], a[2], a[3], b0, b1}) {
        if ((__float_as_uint(x) & 0x1fffu) != 0) sim::fail("a factor has more than ten bits", __LINE__);
    }
    const sim::Fragments* lanes = sim::gathered(a, b, __LINE__);
    const unsigned lane = sim::launch()->current % sim::WARP;
    for (int i = 0; i < 4; ++i) {
        const unsigned row = lane / 4, col = 2 * (lane % 4) + i % 2;
        double sum = sums[i];
        for (int k = 0; k < 8; ++k) {
            sum += static_cast<double>(lanes[row * 4 + k % 4].a[i / 2 + k / 4 * 2]) * lanes[col * 4 + k % 4].b[k / 4];
        }
        const float rounded = static_cast<float>(sum);
        const bool is_beyond = rounded > 0 ? rounded > sum : rounded < sum;
        sums[i] = is_beyond && rounded - rounded == 0 ? __uint_as_float(__float_as_uint(rounded) - 1) : rounded;
    }
}

// Four matrices of 8 rows of four numbers each, which lie in shared memory: lane l names row l%8 of matrix l/8, and gets of each matrix
// the number l%4 of row l/4.
DEVICE void load_matrices(float (&to)[4], const Vec<float, 4>* row) {
    const unsigned lane = sim::launch()->current % sim::WARP;
    for (int i = 0; i < 4; ++i) to[i] = sim::shuffled(row, 8 * i + lane / 4, __LINE__)->at[lane % 4];
}

#else

DEVICE void load_matrices(float (&to)[4], const Vec<float, 4>* row) {
    unsigned bits[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __uint_as_float(bits[i]);
}

DEVICE float to_tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

DEVICE void warp_multiply(float (&sums)[4], const float (&a)[4], float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

DEVICE void copy_async_16(void* to, const void* from, int valid) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(valid) : "memory");
}

template <int bytes>
DEVICE void copy_async_small(void* to, const void* from, bool valid, bool is_asked = true) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile(
        "{ .reg .pred ignored, asked; setp.eq.s32 ignored, %3, 0; setp.ne.s32 asked, %4, 0;\n"
        "@asked cp.async.ca.shared.global [%0], [%1], %2, ignored; }" ::"r"(shared),
        "l"(from), "n"(bytes), "r"(static_cast<int>(valid)), "r"(static_cast<int>(is_asked))
        : "memory");
}

DEVICE void copy_async_whole(void* to, const void* from, bool valid, bool is_asked = true) {
    const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile(
        "{ .reg .pred ignored, asked; setp.eq.s32 ignored, %2, 0; setp.ne.s32 asked, %3, 0;\n"
        "@asked cp.async.cg.shared.global [%0], [%1], 16, ignored; }" ::"r"(shared),
        "l"(from), "r"(static_cast<int>(valid)), "r"(static_cast<int>(is_asked))
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
