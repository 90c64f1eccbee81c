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
    if (first >= 0 && first + static_cast<i64>(axis.dilation) * (axis.kernel - 1) < axis.input) {
        begin = 0, end = axis.kernel;
        return;
    }
    begin = first >= 0 ? 0 : static_cast<int>((-first + axis.dilation - 1) / axis.dilation);
    const i64 left = axis.input - first;
    const i64 taps = left <= 0 ? 0 : (left + axis.dilation - 1) / axis.dilation;
    end = taps < axis.kernel ? static_cast<int>(taps) : axis.kernel;
}

// The outputs that read input i, through whatever tap.
DEVICE void readers(const PoolAxis& axis, i64 i, i64& begin, i64& end) {
    const i64 last = i + axis.padding, first = last - static_cast<i64>(axis.dilation) * (axis.kernel - 1);
    begin = first <= 0 ? 0 : floor_div(first + axis.stride - 1, axis.stride);
    end = floor_div(last, axis.stride) + 1;
    if (end > axis.output) end = axis.output;
}

// The tap of output o at input i, if it has one there; i lies under its window.
DEVICE bool reads(const PoolAxis& axis, i64 o, i64 i, int& tap) {
    const i64 beyond = i + axis.padding - o * axis.stride;
    tap = static_cast<int>(axis.dilation == 1 ? beyond : floor_div(beyond, axis.dilation));
    return static_cast<i64>(tap) * axis.dilation == beyond;
}

// The taps of output o that count in a mean.
DEVICE int counted(const PoolAxis& axis, i64 o) {
    const i64 first = o * axis.stride - axis.padding, end = axis.input + axis.counted_after;
    if (first >= -axis.counted_before && first + static_cast<i64>(axis.dilation) * (axis.kernel - 1) < end) {
        return axis.kernel;
    }
    int taps = 0;
    for (int t = 0; t < axis.kernel; ++t) {
        const i64 i = first + static_cast<i64>(t) * axis.dilation;
        taps += i >= -axis.counted_before && i < end;
    }
    return taps;
}

template <typename T>
DEVICE T divisor(const PoolArgs& args, i64 y, i64 x) {
    return static_cast<T>(static_cast<double>(counted(args.axes[0], y)) *
                          static_cast<double>(counted(args.axes[1], x)));
}

// What lies under the windows of a row of outputs.
template <typename T>
struct Under {
    const PoolArgs& args;
    const View& in;
    const T* plane;
    i64 row;  // of the first tap
    int top, bottom;

    DEVICE Under(const PoolArgs& args, const View& in, int n, int block, i64 y)
        : args(args),
          in(in),
          plane(static_cast<const T*>(in.data) + n * in.batch_stride + block * in.block_stride),
          row(y * args.axes[0].stride - args.axes[0].padding) {
        inside(args.axes[0], y, top, bottom);
    }

    // The row of a tap, from the first pixel of the window of the tensor that is held.
    DEVICE const T* line(int u) const {
        int held = in.first + static_cast<int>(row + static_cast<i64>(u) * args.axes[0].dilation - in.row0);
        if (held >= in.ring) held -= in.ring;
        return plane + held * in.row_stride;
    }

    // Calls `f` with the taps of an output along both axes and some lanes of what lies there, in row-major order. Two loads are under
    // way together, or all four.
    template <int N, typename F>
    DEVICE void for_taps(i64 x, int lane, F f) const {
        typedef Vec<T, N> V;
        const PoolAxis& across = args.axes[1];
        int left, right;
        inside(across, x, left, right);
        const i64 col = of_pixels(x * across.stride - across.padding - in.col0, in.shift) + lane;
        const i64 apart = of_pixels(across.dilation, in.shift);
        const auto at = [&](const T* line, int v) {
            return *reinterpret_cast<const V*>(line + col + v * apart);
        };
        if (bottom - top == 2 && right - left == 2) {
            const T *upper = line(top), *lower = line(top + 1);
            const V taken[4] = {at(upper, left), at(upper, left + 1), at(lower, left), at(lower, left + 1)};
#pragma unroll
            for (int k = 0; k < 4; ++k) f(top + k / 2, left + k % 2, taken[k]);
            return;
        }
#pragma unroll 1
        for (int u = top; u < bottom; ++u) {
            const T* own = line(u);
#pragma unroll 1
            for (int v = left; v < right; v += 2) {
                const bool has_next = v + 1 < right;
                V next = {};
                const V first = at(own, v);
                if (has_next) next = at(own, v + 1);
                f(u, v, first);
                if (has_next) f(u, v + 1, next);
            }
        }
    }

    // The maximum of a window; NaN wins. Of the first in row-major order the place, counted by taps, if it is wanted.
    template <bool IS_PLACE_WANTED, int N>
    DEVICE Vec<T, N> maximum(i64 x, int lane, int (&place)[N]) const {
        Vec<T, N> value;
        for (int i = 0; i < N; ++i) {
            value.at[i] = -static_cast<T>(__longlong_as_double(0x7ff0000000000000ll));
            place[i] = -1;
        }
        for_taps<N>(x, lane, [&](int u, int v, const Vec<T, N>& taken) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const T candidate = taken.at[i], held = value.at[i];
                const bool is_first = IS_PLACE_WANTED && place[i] < 0;
                const bool wins = is_first || (!(candidate <= held) && !is_nan(held));
                value.at[i] = wins ? candidate : held;
                place[i] = wins ? u * args.axes[1].kernel + v : place[i];
            }
        });
        return value;
    }

    template <int N>
    DEVICE Vec<T, N> average(i64 y, i64 x, int lane) const {
        Vec<T, N> sum = {};
        bool is_empty = true;
        for_taps<N>(x, lane, [&](int, int, const Vec<T, N>& taken) {
            for (int i = 0; i < N; ++i) sum.at[i] += taken.at[i];
            is_empty = false;
        });
        if (is_empty) return sum;
        const T by = divisor<T>(args, y, x);
        return each_lane<T, N>([&](int i) { return sum.at[i] / by; });
    }
};

template <typename T, int N>
DEVICE void pool(const PoolArgs& args) {
    const Run<N> run(args.out, args.part);
    for_rows(args.out, args.part, [&](int n, int block, i64 y) {
        const Under<T> under(args, args.in[0], n, block, y);
        T* const to = pixel<T>(args.out, n, block, y, args.part.col0);
        for (unsigned at = run.begin; at < run.end; at += run.step) {
            const i64 x = args.part.col0 + run.col(at);
            int place[N];
            *reinterpret_cast<Vec<T, N>*>(to + static_cast<u64>(at) * N) =
                args.op == MAX ? under.template maximum<false>(x, run.lane(), place)
                               : under.template average<N>(y, x, run.lane());
        }
    });
}

template <typename T, int N>
DEVICE void pool_back(const PoolArgs& args) {
    const PoolAxis &down = args.axes[0], &across = args.axes[1];
    const Run<N> run(args.out, args.part);
    for_rows(args.out, args.part, [&](int n, int block, i64 y) {
        T* const to = pixel<T>(args.out, n, block, y, args.part.col0);
        i64 row0, row1;
        readers(down, y, row0, row1);
        for (unsigned at = run.begin; at < run.end; at += run.step) {
            const i64 x = args.part.col0 + run.col(at);
            i64 col0, col1;
            readers(across, x, col0, col1);
            Vec<T, N> sum = {};
            for (i64 row = row0; row < row1; ++row) {
                int u;
                if (!reads(down, row, y, u)) continue;
                const T* from = pixel<T>(args.in[0], n, block, row, col0) + run.lane();
                for (i64 col = col0; col < col1; ++col, from += of_pixels(1, args.in[0].shift)) {
                    int v;
                    if (!reads(across, col, x, v)) continue;
                    const Vec<T, N> taken = *reinterpret_cast<const Vec<T, N>*>(from);
                    if (args.op == AVERAGE_BACKWARD) {
                        const T by = divisor<T>(args, row, col);
                        for (int i = 0; i < N; ++i) sum.at[i] += taken.at[i] / by;
                        continue;
                    }
                    int place[N];
                    Under<T>(args, args.in[1], n, block, row).template maximum<true>(col, run.lane(), place);
                    for (int i = 0; i < N; ++i) {
                        if (place[i] == u * across.kernel + v) sum.at[i] += taken.at[i];
                    }
                }
            }
            *reinterpret_cast<Vec<T, N>*>(to + static_cast<u64>(at) * N) = sum;
        }
    });
}

KERNEL(pool_f32_1, PoolArgs, 256) { pool<float, 1>(args); }
KERNEL(pool_f32_4, PoolArgs, 256, 4) { pool<float, LANES>(args); }
KERNEL(pool_f64_1, PoolArgs, 256) { pool<double, 1>(args); }
KERNEL(pool_f64_4, PoolArgs, 256) { pool<double, LANES>(args); }

KERNEL(pool_back_f32_1, PoolArgs, 256) { pool_back<float, 1>(args); }
KERNEL(pool_back_f32_4, PoolArgs, 256) { pool_back<float, LANES>(args); }
KERNEL(pool_back_f64_1, PoolArgs, 256) { pool_back<double, 1>(args); }
KERNEL(pool_back_f64_4, PoolArgs, 256) { pool_back<double, LANES>(args); }
