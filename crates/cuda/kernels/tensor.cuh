// Sums by tensor cores, a warp at a time: 16 rows by 8 columns, 8 terms of each.
//
// Factors are rounded to ten bits after the point (TF32). In three products each is a sum of two such numbers, and what is left out is
// the product of the smaller ones: 21 bits. Tensor cores cut off what does not fit a sum, so they add up 8 terms from zero alone, and
// an ordinary addition adds these to the sum: one chain of such additions, whatever the tile.
#pragma once

#include "device.cuh"
#include "ptx.cuh"

// Factors of this lane, rounded, and what the rounding has left.
template <int N>
struct Factors {
    float high[N], low[N];
};

template <bool THRICE, int N>
DEVICE void set_factor(Factors<N>& factors, int i, float x) {
    factors.high[i] = to_tf32(x);
    if (THRICE) factors.low[i] = to_tf32(x - factors.high[i]);
}

// `sums += a·b`, the smallest products first.
template <bool THRICE>
DEVICE void add_products(float (&sums)[4], const Factors<4>& a, const Factors<2>& b) {
    float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (THRICE) {
        warp_multiply(products, a.low, b.high);
        warp_multiply(products, a.high, b.low);
    }
    warp_multiply(products, a.high, b.high);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += products[i];
}

// The part of a tile that a warp has: `TALL` times 16 rows by `WIDE` times 8 columns, and `ALONG` such parts side by side.
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
