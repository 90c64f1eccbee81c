// What every kernel is written in: types, windows, and one word for CUDA and for the simulated device.
#pragma once

#ifdef TILED_SIM
#include "sim.h"
#else
#define DEVICE __device__ __forceinline__
// A call of its own: what is rare, or large.
#define OUTLINED static __device__ __noinline__
#define RESTRICT __restrict__
// A value that all threads see.
#define GLOBAL static __device__
// A kernel takes the registers that it needs; where blocks of threads are named beside their size, so few that a multiprocessor holds as
// many blocks.
#define BOUNDS(threads, blocks, ...) __launch_bounds__(threads, blocks)
#define KERNEL(name, Args, ...) extern "C" __global__ void BOUNDS(__VA_ARGS__, 1, ) name(const __grid_constant__ Args args)
// So many on the generation that they were measured on, or on others, whose compilers want some registers more.
#if __CUDA_ARCH__ / 10 == 90
#define BLOCKS_90(blocks, others) blocks
#else
#define BLOCKS_90(blocks, others) others
#endif
#define SHARED(Type, name)                                        \
    __shared__ __align__(128) unsigned char name##_bytes[sizeof(Type)]; \
    Type& name = *reinterpret_cast<Type*>(name##_bytes)
// The same of more than 48 KiB, which the launch gives: `units.rs` has how much.
#define DYNAMIC_SHARED(Type, name)                              \
    extern __shared__ __align__(128) unsigned char name##_bytes[]; \
    Type& name = *reinterpret_cast<Type*>(name##_bytes)
#endif

typedef long long i64;
typedef unsigned long long u64;

// A window in rings of rows, in global coordinates, as `Layout` describes it; a row is a run of pixels of one channel block.
struct View {
    void* data;
    i64 batch_stride, block_stride, row_stride;  // in elements
    i64 row0, col0;                              // where the window begins
    int first, ring;                             // the row of storage of row `row0`, and how many there are
    int channels, shift;                         // of a pixel, and the binary logarithm of those of a block
};

// A part of a tensor, in global coordinates.
struct Part {
    i64 row0, col0;
    int rows, cols, images, unused;
};

// So many pixels of a block in elements; also to the left of a window, where nothing is read.
DEVICE i64 of_pixels(i64 pixels, int shift) { return static_cast<i64>(static_cast<u64>(pixels) << shift); }

// The first element of a pixel in a channel block.
template <typename T>
DEVICE T* pixel(const View& view, int n, int block, i64 y, i64 x) {
    int row = view.first + static_cast<int>(y - view.row0);
    if (row >= view.ring) row -= view.ring;
    return static_cast<T*>(view.data) + n * view.batch_stride + block * view.block_stride + row * view.row_stride +
           of_pixels(x - view.col0, view.shift);
}

// An element by its channel.
template <typename T>
DEVICE T& element(const View& view, int n, int c, i64 y, i64 x) {
    return pixel<T>(view, n, c >> view.shift, y, x)[c & ((1 << view.shift) - 1)];
}

// Lanes of a pixel that a thread computes.
constexpr int LANES = 4;

// Some lanes of a pixel; as many bytes as one load takes, twice that for f64.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vec {
    T at[N];
};

// The lanes that lie at an address of so many bytes.
template <typename T>
DEVICE Vec<T, LANES> lanes_at(const T* from) {
    return *reinterpret_cast<const Vec<T, LANES>*>(from);
}

DEVICE float fma(float a, float b, float c, int) { return __fmaf_rn(a, b, c); }
DEVICE double fma(double a, double b, double c, int) { return __fma_rn(a, b, c); }
// One rounding.
template <typename T>
DEVICE T multiply_add(T a, T b, T c) {
    return fma(a, b, c, 0);
}

template <typename T>
DEVICE bool is_nan(T x) {
    return !(x == x);
}

// By a positive number; nearly all are below 2^32, whose division takes a fifth of the instructions.
DEVICE i64 floor_div(i64 a, i64 b) {
    if (static_cast<u64>(a | b) >> 32 == 0) return static_cast<unsigned>(a) / static_cast<unsigned>(b);
    return a / b - (a % b < 0);
}
DEVICE i64 floor_mod(i64 a, i64 b) { return a - floor_div(a, b) * b; }

// What the threads of a launch share out among them: rows and planes of a part. `f` is called with the image, the channel block and
// the row.
template <typename F>
DEVICE void for_rows(const View& out, const Part& part, F f) {
    const int blocks = (out.channels + (1 << out.shift) - 1) >> out.shift;
    for (int plane = blockIdx.z; plane < part.images * blocks; plane += gridDim.z) {
        const int n = plane / blocks, block = plane % blocks;
        for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < part.rows; row += gridDim.y * blockDim.y) {
            f(n, block, part.row0 + row);
        }
    }
}

// The vectors of a row that a thread takes: every `step`-th, all of the same lanes, as a launch has a multiple of a block's lanes of
// threads along a row. Of one row there are at most 2^29.
template <int N>
struct Run {
    int bits;  // the binary logarithm of the vectors of a pixel
    unsigned begin, end, step;
    DEVICE Run(const View& out, const Part& part)
        : bits(N >= 1 << out.shift ? 0 : out.shift - (N == 1 ? 0 : N == 2 ? 1 : 2)),
          begin(blockIdx.x * blockDim.x + threadIdx.x),
          end(static_cast<unsigned>(part.cols) << bits),
          step(gridDim.x * blockDim.x) {}
    DEVICE int lane() const { return static_cast<int>(begin & ((1u << bits) - 1)) * N; }
    DEVICE int col(unsigned at) const { return static_cast<int>(at >> bits); }
};

// The same for some lanes of each pixel of these rows: `f` is called with the column and the first lane as well.
template <int N, typename F>
DEVICE void for_lanes(const View& out, const Part& part, F f) {
    const Run<N> run(out, part);
    for_rows(out, part, [&](int n, int block, i64 y) {
        for (unsigned at = run.begin; at < run.end; at += run.step) {
            f(n, block, y, part.col0 + run.col(at), run.lane());
        }
    });
}

// Computes some lanes of an output from the same ones of inputs, whose blocks are as large; `read` has a bit for each input that is
// read. Of a row `prepare` is told the image, the first channel and the row, and gives what makes lanes of those of the inputs and of
// the column. The loads of several vectors are under way together.
template <typename T, int N, int AT_ONCE, int INPUTS, typename F>
DEVICE void for_vectors(const View& out, const View* in, unsigned read, const Part& part, F prepare) {
    typedef Vec<T, N> V;
    const Run<N> run(out, part);
    for_rows(out, part, [&](int n, int block, i64 y) {
        if (run.begin >= run.end) return;
        T* const to = pixel<T>(out, n, block, y, part.col0);
        const T* from[INPUTS];
#pragma unroll
        for (int i = 0; i < INPUTS; ++i) {
            from[i] = (read >> i & 1) != 0 ? pixel<T>(in[i], n, block, y, part.col0) : nullptr;
        }
        const auto compute = prepare(n, (block << out.shift) + run.lane(), y);
        for (unsigned first = run.begin; first < run.end; first += AT_ONCE * run.step) {
            V taken[AT_ONCE][INPUTS];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const unsigned at = first + k * run.step;
#pragma unroll
                for (int i = 0; i < INPUTS; ++i) {
                    if (at < run.end && from[i] != nullptr) {
                        taken[k][i] = *reinterpret_cast<const V*>(from[i] + static_cast<u64>(at) * N);
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const unsigned at = first + k * run.step;
                if (at < run.end) {
                    *reinterpret_cast<V*>(to + static_cast<u64>(at) * N) = compute(taken[k], run.col(at));
                }
            }
        }
    });
}

// A number for each of some lanes.
template <typename T, int N, typename F>
DEVICE Vec<T, N> each_lane(F f) {
    Vec<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) result.at[i] = f(i);
    return result;
}
