// What follows the sums of a convolution, and where they are written, for all pixels of a thread at once. The dense kernels have no registers
// left for that, and call `finish` for one pixel after another: the same steps in the same order.
#pragma once

#include "dense.cuh"

// The channel of a pixel in a window, in elements from its first one.
DEVICE i64 of_channel(const View& view, int c) {
    return (c >> view.shift) * view.block_stride + (c & ((1 << view.shift) - 1));
}

// An output of a class in global coordinates.
DEVICE i64 y_of(const ConvArgs& args, int row) { return args.part.row0 + static_cast<i64>(row) * args.step[0]; }
DEVICE i64 x_of(const ConvArgs& args, int col) { return args.part.col0 + static_cast<i64>(col) * args.step[1]; }

// Where pixels lie in a window that have so many rows between them, in elements from its first one.
struct Column {
    i64 first, row_stride;
    int slot, ring, apart;
    DEVICE Column(const View& view, int n, i64 y, i64 x, int rows_apart)
        : first(n * view.batch_stride + of_pixels(x - view.col0, view.shift)), row_stride(view.row_stride),
          slot(view.first + static_cast<int>(y - view.row0)), ring(view.ring), apart(rows_apart) {}
    DEVICE i64 operator()(int i) const {
        const int own = slot + i * apart;
        return first + (own >= ring ? own - ring : own) * row_stride;
    }
};

// Some channels of a pixel, which lie together or not.
template <typename T, int N>
DEVICE Vec<T, N> channels_at(const View& view, i64 place, int c, int count, bool are_together) {
    const T* pixel = static_cast<const T*>(view.data) + place;
    if (are_together) return *reinterpret_cast<const Vec<T, N>*>(pixel + of_channel(view, c));
    Vec<T, N> values = {};
#pragma unroll
    for (int j = 0; j < N; ++j) {
        if (j < count) values.at[j] = pixel[of_channel(view, c + j)];
    }
    return values;
}

// Writes the sums of a thread: of some pixels N channels from `first` on, and as many from each `apart`-th one after it. What follows
// the sums, as `finish` has it, is asked for once for all of them. `places(which, view)` gives where pixels lie in what is written, added
// or masks, below zero where there is none.
template <typename T, int N, int PIXELS, int V, typename PlacesOf>
DEVICE void write_all(const ConvArgs& args, Vec<T, N> (&sums)[PIXELS][V], int group, int first, int apart, PlacesOf places_of) {
    // a block may end with lanes that are no channel
    const bool are_together = N == 1 || (args.out.shift > 0 && args.groups == 1);
    const auto count_of = [&](int b) { return args.outputs - first - b * apart; };
    const auto channel_of = [&](int b) { return group * args.outputs + first + b * apart; };
    const auto each = [&](auto f) {
#pragma unroll
        for (int i = 0; i < PIXELS; ++i) {
#pragma unroll
            for (int b = 0; b < V; ++b) {
#pragma unroll
                for (int j = 0; j < N; ++j) f(sums[i][b].at[j]);
            }
        }
    };
    const auto each_with = [&](int which, const View& view, auto f) {
        const auto places = places_of(which, view);
#pragma unroll
        for (int i = 0; i < PIXELS; ++i) {
            const i64 place = places(i);
            if (place < 0) continue;
#pragma unroll
            for (int b = 0; b < V; ++b) {
                if (count_of(b) <= 0) break;
                const Vec<T, N> others = channels_at<T, N>(view, place, channel_of(b), count_of(b), are_together);
#pragma unroll
                for (int j = 0; j < N; ++j) f(sums[i][b].at[j], others.at[j]);
            }
        }
    };
    if (args.affine != nullptr) {
#pragma unroll
        for (int b = 0; b < V; ++b) {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (j >= count_of(b)) break;
                const T* factors = static_cast<const T*>(args.affine) + channel_of(b) + j;
                const T factor = factors[0], added = factors[args.affine_len];
#pragma unroll
                for (int i = 0; i < PIXELS; ++i) sums[i][b].at[j] = multiply_add(sums[i][b].at[j], factor, added);
            }
        }
    }
    if (args.sums != 0) each_with(1, args.added, [](T& value, T added) { value += added; });
    const T slope = static_cast<T>(args.slope), mask_slope = static_cast<T>(args.mask_slope);
    if (args.activation == 1) each([](T& value) { value = value <= T(0) ? T(0) : value; });
    if (args.activation == 2) each([&](T& value) { value = value > T(0) ? value : value * slope; });
    if (args.mask == 1) each_with(2, args.saved, [](T& value, T saved) { value = saved <= T(0) ? T(0) : value; });
    if (args.mask == 2) each_with(2, args.saved, [&](T& value, T saved) { value = saved > T(0) ? value : value * mask_slope; });
    const auto places = places_of(0, args.out);
#pragma unroll
    for (int i = 0; i < PIXELS; ++i) {
        const i64 place = places(i);
        if (place < 0) continue;
        T* out = static_cast<T*>(args.out.data) + place;
#pragma unroll
        for (int b = 0; b < V; ++b) {
            if (count_of(b) <= 0) break;
            if (are_together) {
                *reinterpret_cast<Vec<T, N>*>(out + of_channel(args.out, channel_of(b))) = sums[i][b];
            } else {
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    if (j < count_of(b)) out[of_channel(args.out, channel_of(b) + j)] = sums[i][b].at[j];
                }
            }
        }
    }
}
