// A pixel with all its channels.
#pragma once
#include "math.cuh"

// The channels of a pixel.
template <typename T>
struct Channels {
    T* first;
    i64 stride;
    int shift;
    DEVICE Channels(const View& view, int n, i64 y, i64 x)
        : first(pixel<T>(view, n, 0, y, x)), stride(view.block_stride), shift(view.shift) {}
    DEVICE T& operator[](int c) const { return first[(c >> shift) * stride + (c & ((1 << shift) - 1))]; }
};

// The sum of sixteen sums, each of the channels of one remainder modulo 16 in their order. `add(c, sum)` is a sum with its next term.
template <typename F>
DEVICE double sum_of_channels(int channels, const F& add) {
    double total = 0.0;
#pragma unroll 1
    for (int first = 0; first < 16; ++first) {
        double sum = 0.0;
#pragma unroll 1
        for (int c = first; c < channels; c += 16) sum = add(c, sum);
        total += sum;
    }
    return total;
}

// The largest of the channels and `Σ scale·e^(x − largest)`, of the scale of `power_below`; not a number loses, and shows in the sum.
template <typename T>
DEVICE void softmax_of(const Channels<T>& x, int channels, T& largest, double& sum) {
    largest = static_cast<T>(-__longlong_as_double(0x7ff0000000000000ll));
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        const T value = x[c];
        largest = value > largest ? value : largest;
    }
    const T most = largest;
    sum = sum_of_channels(channels, [&](int c, double sum) { return sum + power_below(x[c], most); });
}

// The class that a target of one channel names: −1 where it counts for nothing, −2 where it is no channel.
DEVICE int class_of(double value, int channels) {
    if (value < 0.0) return -1;
    if (!(value < channels)) return -2;
    const int of = static_cast<int>(value);
    return static_cast<double>(of) == value ? of : -2;
}

