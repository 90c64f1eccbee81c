// What every kernel is written in: types, windows, and one word for CUDA and for the simulated device.
#pragma once

#ifdef TILED_SIM
#include "sim.h"
#else
#define DEVICE __device__ __forceinline__
// A call of its own: what is rare, or large.
#define OUTLINED static __device__ __noinline__
#define RESTRICT __restrict__
// A kernel takes the registers that it needs; where blocks of threads are named beside their size, so few that a multiprocessor holds as
// many blocks.
#define BOUNDS(threads, blocks, ...) __launch_bounds__(threads, blocks)
#define KERNEL(name, Args, ...) extern "C" __global__ void BOUNDS(__VA_ARGS__, 1, ) name(const __grid_constant__ Args args)
#define SHARED(Type, name)                                        \
    __shared__ __align__(128) unsigned char name##_bytes[sizeof(Type)]; \
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

DEVICE i64 floor_div(i64 a, i64 b) { return a / b - (a % b < 0); }
DEVICE i64 floor_mod(i64 a, i64 b) { return a % b + (a % b < 0 ? b : 0); }

// What the threads of a launch share out among them: rows, columns and planes of a part, some lanes of a pixel each. `f` is called
// with the image, the channel block, the row, the column and the first lane.
template <int N, typename F>
DEVICE void for_lanes(const View& out, const Part& part, F f) {
    const int groups = N >= 1 << out.shift ? 1 : (1 << out.shift) / N;
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = at / groups, lane = at % groups * N;
    if (col >= part.cols) return;
    const int blocks = (out.channels + (1 << out.shift) - 1) >> out.shift;
    for (int plane = blockIdx.z; plane < part.images * blocks; plane += gridDim.z) {
        const int n = plane / blocks, block = plane % blocks;
        for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < part.rows; row += gridDim.y * blockDim.y) {
            f(n, block, part.row0 + row, part.col0 + col, lane);
        }
    }
}
