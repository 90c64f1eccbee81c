// Sums by tensor cores, a warp at a time: pieces of 16 rows by 8 columns, blocks of 8 terms.
//
// Factors are rounded to ten bits after the point (TF32). In three products each is a sum of two such numbers, of which the second is
// cut off, and what is left out is the product of the smaller ones: 20 bits. Tensor cores cut off what does not fit a sum, so they add
// up one step from zero alone, block by block: 32 terms, or 16 of three products, the small products before the large ones. An
// ordinary addition adds these to the sum: one chain of such additions, whatever the tile.
#pragma once

#include "device.cuh"
#include "ptx.cuh"

// Blocks of eight terms in a step.
template <bool THRICE>
constexpr int BLOCKS = THRICE ? 2 : 4;

// The part of a tile that a warp has: `TALL` pieces of rows by `WIDE` of columns, and `ALONG` such parts side by side.
template <int ROWS, int COLS, int TALL, int WIDE>
struct Warps {
    static constexpr int ALONG = COLS / (8 * WIDE), THREADS = 32 * ALONG * (ROWS / (16 * TALL));
    int row, col;    // the first ones of the warp
    int across, in;  // of the lane within 8 by 4
    DEVICE void begin(int thread) {
        row = thread / 32 / ALONG * 16 * TALL, col = thread / 32 % ALONG * 8 * WIDE;
        across = thread % 32 / 4, in = thread % 4;
    }
};

// What rounding has left of a factor, cut off to ten bits after the point.
DEVICE float left_of(float x, float rounded) { return __uint_as_float(__float_as_uint(x - rounded) & ~0x1fffu); }

template <int N>
DEVICE void clear(float (&numbers)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; ++i) numbers[i / 4][i % 4] = 0.0f;
}

template <int N>
DEVICE void add(float (&sums)[N][4], const float (&products)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; ++i) sums[i / 4][i % 4] += products[i / 4][i % 4];
}

// Adds a step. `rows` gives the rounded factors of a block and a piece of rows, `cols` those of two pieces of columns; `between` is called
// once for each block.
template <int TALL, int WIDE, typename Rows, typename Cols, typename Between>
DEVICE void add_once(float (&sums)[TALL][WIDE][4], Rows rows, Cols cols, Between between) {
    float products[TALL][WIDE][4];
#pragma unroll
    for (int i = 0; i < TALL; ++i) clear(products[i]);
#pragma unroll
    for (int block = 0; block < BLOCKS<false>; ++block) {
        float a[TALL][4], b[WIDE / 2][4];
#pragma unroll
        for (int i = 0; i < TALL; ++i) rows(block, i, a[i]);
#pragma unroll
        for (int j = 0; j < WIDE / 2; ++j) cols(block, 2 * j, b[j]);
        between(block);
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
#pragma unroll
            for (int j = 0; j < WIDE; ++j) warp_multiply(products[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < TALL; ++i) add(sums[i], products[i]);
}

// The same of three products: `rows` and `cols` give factors as they are, `cols` those of one piece of columns and of both blocks.
template <int TALL, int WIDE, typename Rows, typename Cols, typename Between>
DEVICE void add_thrice(float (&sums)[TALL][WIDE][4], Rows rows, Cols cols, Between between) {
    constexpr int N = BLOCKS<true>;
    float a[N][TALL][4], a_left[N][TALL][4];
#pragma unroll
    for (int block = 0; block < N; ++block) {
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
            float x[4];
            rows(block, i, x);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                a[block][i][k] = to_tf32(x[k]);
                a_left[block][i][k] = left_of(x[k], a[block][i][k]);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
        float x[2 * N], b[2 * N], b_left[2 * N], products[TALL][4];
        cols(j, x);
        if (j >= 1 && j <= N) between(j - 1);
#pragma unroll
        for (int k = 0; k < 2 * N; ++k) {
            b[k] = to_tf32(x[k]);
            b_left[k] = left_of(x[k], b[k]);
        }
        clear(products);
#pragma unroll
        for (int block = 0; block < N; ++block) {
#pragma unroll
            for (int i = 0; i < TALL; ++i) warp_multiply(products[i], a_left[block][i], b[2 * block], b[2 * block + 1]);
        }
#pragma unroll
        for (int block = 0; block < N; ++block) {
#pragma unroll
            for (int i = 0; i < TALL; ++i) warp_multiply(products[i], a[block][i], b_left[2 * block], b_left[2 * block + 1]);
        }
#pragma unroll
        for (int block = 0; block < N; ++block) {
#pragma unroll
            for (int i = 0; i < TALL; ++i) warp_multiply(products[i], a[block][i], b[2 * block], b[2 * block + 1]);
        }
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[i][j][k] += products[i][k];
        }
    }
}
