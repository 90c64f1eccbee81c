// Maximum and average pooling and their gradients.
#include "device.cuh"

enum PoolOp { MAX, MAX_BACKWARD, AVERAGE, AVERAGE_BACKWARD };

// Along an axis: the window, the extents, and the padding that counts in a mean.
struct PoolAxis {
    i64 input, output;
    int kernel, stride, dilation, padding;
    int counted_before, counted_after;
};

struct PoolArgs {
    View out, in[2];
    Part part;
    PoolAxis axes[2];
    int op, unused;
};

// The taps of output o that lie in the tensor: those from `begin` on, `end` not among them.
DEVICE void inside(const PoolAxis& axis, i64 o, int& begin, int& end) {
    const i64 first = o * axis.stride - axis.padding;
    begin = first >= 0 ? 0 : static_cast<int>((-first + axis.dilation - 1) / axis.dilation);
    const i64 left = axis.input - first;
    const i64 taps = left <= 0 ? 0 : (left + axis.dilation - 1) / axis.dilation;
    end = taps < axis.kernel ? static_cast<int>(taps) : axis.kernel;
}

// The outputs that read input i, through whatever tap.
DEVICE void readers(const PoolAxis& axis, i64 i, i64& begin, i64& end) {
    const i64 span = static_cast<i64>(axis.dilation) * (axis.kernel - 1);
    begin = -floor_div(-(i + axis.padding - span), axis.stride);
    end = floor_div(i + axis.padding, axis.stride) + 1;
    if (begin < 0) begin = 0;
    if (end > axis.output) end = axis.output;
}

// Whether output o has a tap at input i.
DEVICE bool reads(const PoolAxis& axis, i64 o, i64 i) { return (i + axis.padding - o * axis.stride) % axis.dilation == 0; }

DEVICE int counted(const PoolAxis& axis, i64 o) {
    int taps = 0;
    for (int t = 0; t < axis.kernel; ++t) {
        const i64 i = o * axis.stride - axis.padding + static_cast<i64>(t) * axis.dilation;
        taps += i >= -axis.counted_before && i < axis.input + axis.counted_after;
    }
    return taps;
}

template <typename T>
DEVICE T divisor(const PoolArgs& args, i64 y, i64 x) {
    return static_cast<T>(static_cast<double>(counted(args.axes[0], y)) *
                          static_cast<double>(counted(args.axes[1], x)));
}

// The first maximum of a window in row-major order and its place, counted by taps; NaN wins.
template <typename T, int N>
DEVICE void maximum(const PoolArgs& args, const View& in, int n, int block, int lane, i64 y, i64 x, Vec<T, N>& value,
                    int (&place)[N]) {
    int top, bottom, left, right;
    inside(args.axes[0], y, top, bottom);
    inside(args.axes[1], x, left, right);
    for (int i = 0; i < N; ++i) {
        value.at[i] = -static_cast<T>(__longlong_as_double(0x7ff0000000000000ll));
        place[i] = -1;
    }
    for (int u = top; u < bottom; ++u) {
        const i64 row = y * args.axes[0].stride - args.axes[0].padding + static_cast<i64>(u) * args.axes[0].dilation;
        for (int v = left; v < right; ++v) {
            const i64 col =
                x * args.axes[1].stride - args.axes[1].padding + static_cast<i64>(v) * args.axes[1].dilation;
            const Vec<T, N> taken = *reinterpret_cast<const Vec<T, N>*>(pixel<T>(in, n, block, row, col) + lane);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const T candidate = taken.at[i], held = value.at[i];
                const bool wins = place[i] < 0 || candidate > held || (is_nan(candidate) && !is_nan(held));
                value.at[i] = wins ? candidate : held;
                place[i] = wins ? u * args.axes[1].kernel + v : place[i];
            }
        }
    }
}

template <typename T, int N>
DEVICE void pool(const PoolArgs& args) {
    for_lanes<N>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        Vec<T, N> result;
        if (args.op == MAX) {
            int place[N];
            maximum<T, N>(args, args.in[0], n, block, lane, y, x, result, place);
        } else {
            for (int i = 0; i < N; ++i) result.at[i] = T(0);
            int top, bottom, left, right;
            inside(args.axes[0], y, top, bottom);
            inside(args.axes[1], x, left, right);
            for (int u = top; u < bottom; ++u) {
                const i64 row =
                    y * args.axes[0].stride - args.axes[0].padding + static_cast<i64>(u) * args.axes[0].dilation;
                for (int v = left; v < right; ++v) {
                    const i64 col =
                        x * args.axes[1].stride - args.axes[1].padding + static_cast<i64>(v) * args.axes[1].dilation;
                    const Vec<T, N> taken =
                        *reinterpret_cast<const Vec<T, N>*>(pixel<T>(args.in[0], n, block, row, col) + lane);
                    for (int i = 0; i < N; ++i) result.at[i] += taken.at[i];
                }
            }
            if (top < bottom && left < right) {
                const T by = divisor<T>(args, y, x);
                for (int i = 0; i < N; ++i) result.at[i] = result.at[i] / by;
            }
        }
        *reinterpret_cast<Vec<T, N>*>(pixel<T>(args.out, n, block, y, x) + lane) = result;
    });
}

template <typename T, int N>
DEVICE void pool_back(const PoolArgs& args) {
    for_lanes<N>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        Vec<T, N> sum;
        for (int i = 0; i < N; ++i) sum.at[i] = T(0);
        i64 row0, row1, col0, col1;
        readers(args.axes[0], y, row0, row1);
        readers(args.axes[1], x, col0, col1);
        for (i64 row = row0; row < row1; ++row) {
            if (!reads(args.axes[0], row, y)) continue;
            for (i64 col = col0; col < col1; ++col) {
                if (!reads(args.axes[1], col, x)) continue;
                const Vec<T, N> taken =
                    *reinterpret_cast<const Vec<T, N>*>(pixel<T>(args.in[0], n, block, row, col) + lane);
                if (args.op == AVERAGE_BACKWARD) {
                    const T by = divisor<T>(args, row, col);
                    for (int i = 0; i < N; ++i) sum.at[i] += taken.at[i] / by;
                    continue;
                }
                Vec<T, N> value;
                int place[N];
                maximum<T, N>(args, args.in[1], n, block, lane, row, col, value, place);
                const int u =
                    static_cast<int>((y + args.axes[0].padding - row * args.axes[0].stride) / args.axes[0].dilation);
                const int v =
                    static_cast<int>((x + args.axes[1].padding - col * args.axes[1].stride) / args.axes[1].dilation);
                for (int i = 0; i < N; ++i) {
                    if (place[i] == u * args.axes[1].kernel + v) sum.at[i] += taken.at[i];
                }
            }
        }
        *reinterpret_cast<Vec<T, N>*>(pixel<T>(args.out, n, block, y, x) + lane) = sum;
    });
}

KERNEL(pool_f32_1, PoolArgs, 256) { pool<float, 1>(args); }
KERNEL(pool_f32_4, PoolArgs, 256) { pool<float, LANES>(args); }
KERNEL(pool_f64_1, PoolArgs, 256) { pool<double, 1>(args); }
KERNEL(pool_f64_4, PoolArgs, 256) { pool<double, LANES>(args); }

KERNEL(pool_back_f32_1, PoolArgs, 256) { pool_back<float, 1>(args); }
KERNEL(pool_back_f32_4, PoolArgs, 256) { pool_back<float, LANES>(args); }
KERNEL(pool_back_f64_1, PoolArgs, 256) { pool_back<double, 1>(args); }
KERNEL(pool_back_f64_4, PoolArgs, 256) { pool_back<double, LANES>(args); }
