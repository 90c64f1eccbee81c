// Kernels that move elements: each element of the output is one of an input, a constant, or the sum of a few.
#include "math.cuh"

enum MoveOp {
    CONCAT,
    SLICE,
    SLICE_BACKWARD,
    CHANNEL_SHUFFLE,
    PIXEL_SHUFFLE,
    PIXEL_UNSHUFFLE,
    PAD,
    PAD_BACKWARD,
    PAD_CONSTANT,
    BROADCAST,
    SCATTER,
    RESIZE,
    RESIZE_BACKWARD
};

enum PadMode { REFLECT, REPLICATE, CIRCULAR };
enum ResizeMode { NEAREST, LINEAR, LINEAR_ALIGN_CORNERS };

// An axis of padding or of resampling; `mode` is that of either.
struct Axis {
    i64 input, output, before;
    int mode, unused;
};

struct MoveArgs {
    View out, in[8];
    Part part;
    Axis axes[2];
    const void* extrema;
    double number;
    int op, inputs;
    int at, unused;  // the first channel of a slice, groups, a factor
};

// What `ImageMax` has found, as `src/reductions.rs` reads it.
struct Extremum {
    double value;
    i64 found, row, col;
};

DEVICE i64 shown(const Axis& axis, i64 o) {
    const i64 x = o - axis.before;
    if (axis.mode == REPLICATE) return x < 0 ? 0 : x >= axis.input ? axis.input - 1 : x;
    if (axis.mode == CIRCULAR) return floor_mod(x, axis.input);
    return x < 0 ? -x : x >= axis.input ? 2 * (axis.input - 1) - x : x;
}

// The padded coordinates that show input i: a run before the tensor, one inside, and one behind it.
DEVICE void showing(const Axis& axis, i64 i, i64 (&begin)[3], i64 (&end)[3]) {
    const i64 inside = axis.before + axis.input;
    begin[1] = axis.before + i;
    end[1] = begin[1] + 1;
    if (axis.mode == REPLICATE) {
        begin[0] = 0;
        end[0] = i == 0 ? axis.before : 0;
        begin[2] = inside;
        end[2] = i == axis.input - 1 ? axis.output : inside;
        return;
    }
    const bool mirrors = axis.mode == REFLECT;
    begin[0] = mirrors ? axis.before - i : begin[1] - axis.input;
    end[0] = begin[0] >= 0 && begin[0] < axis.before ? begin[0] + 1 : begin[0];
    begin[2] = mirrors ? axis.before + 2 * (axis.input - 1) - i : begin[1] + axis.input;
    end[2] = begin[2] >= inside && begin[2] < axis.output ? begin[2] + 1 : begin[2];
}

DEVICE void source(const Axis& axis, i64 o, i64& numerator, i64& denominator) {
    if (axis.mode == NEAREST) {
        numerator = o * axis.input / axis.output;
        denominator = 1;
    } else if (axis.mode == LINEAR) {
        numerator = (2 * o + 1) * axis.input - axis.output;
        if (numerator < 0) numerator = 0;
        denominator = 2 * axis.output;
    } else {
        numerator = axis.output == 1 ? 0 : o * (axis.input - 1);
        denominator = axis.output == 1 ? 1 : axis.output - 1;
    }
}

// The first and the last input that output o reads, and the weights of both; the first alone where both are one.
template <typename T>
DEVICE void taps(const Axis& axis, i64 o, i64& low, i64& high, T& before, T& after) {
    i64 numerator, denominator;
    source(axis, o, numerator, denominator);
    low = numerator / denominator;
    if (low > axis.input - 1) low = axis.input - 1;
    high = axis.mode == NEAREST || low + 1 > axis.input - 1 ? low : low + 1;
    after = T(0);
    if (high != low) {
        after = static_cast<T>(static_cast<double>(numerator % denominator) / static_cast<double>(denominator));
    }
    before = T(1) - after;
}

// The first output whose last tap is at least `input` (or whose first tap is, `of_low`), from a guess that is near it.
DEVICE i64 first_output(const Axis& axis, i64 input, bool of_low) {
    float before, after;
    i64 low, high;
    auto reaches = [&](i64 o) {
        taps(axis, o, low, high, before, after);
        return (of_low ? low : high) >= input;
    };
    const double position = static_cast<double>(of_low || axis.mode == NEAREST ? input : input - 1);
    i64 o = static_cast<i64>(position * static_cast<double>(axis.output) / static_cast<double>(axis.input));
    if (o < 0) o = 0;
    if (o > axis.output) o = axis.output;
    while (o > 0 && reaches(o - 1)) --o;
    while (o < axis.output && !reaches(o)) ++o;
    return o;
}

template <typename T>
DEVICE T resized(const MoveArgs& args, int n, int c, i64 y, i64 x) {
    i64 top, bottom, left, right;
    T above, below, before, after;
    taps(args.axes[0], y, top, bottom, above, below);
    taps(args.axes[1], x, left, right, before, after);
    auto column = [&](i64 j) {
        const T low = element<T>(args.in[0], n, c, top, j);
        return top == bottom ? low : multiply_add(below, element<T>(args.in[0], n, c, bottom, j), above * low);
    };
    const T first = column(left);
    return left == right ? first : multiply_add(after, column(right), before * first);
}

template <typename T>
DEVICE T resized_back(const MoveArgs& args, int n, int c, i64 y, i64 x) {
    const i64 row0 = first_output(args.axes[0], y, false), row1 = first_output(args.axes[0], y + 1, true);
    const i64 col0 = first_output(args.axes[1], x, false), col1 = first_output(args.axes[1], x + 1, true);
    T sum = T(0);
    for (i64 j = col0; j < col1; ++j) {
        i64 left, right;
        T before, after, column = T(0);
        taps(args.axes[1], j, left, right, before, after);
        for (i64 i = row0; i < row1; ++i) {
            i64 top, bottom;
            T above, below;
            taps(args.axes[0], i, top, bottom, above, below);
            column = multiply_add(top == y ? above : below, element<T>(args.in[0], n, c, i, j), column);
        }
        sum = multiply_add(left == x ? before : after, column, sum);
    }
    return sum;
}

template <typename T>
DEVICE T padded_back(const MoveArgs& args, int n, int c, i64 y, i64 x) {
    i64 row[3], rows[3], col[3], cols[3];
    showing(args.axes[0], y, row, rows);
    showing(args.axes[1], x, col, cols);
    T sum = T(0);
    for (int v = 0; v < 3; ++v) {
        for (i64 i = row[v]; i < rows[v]; ++i) {
            for (int h = 0; h < 3; ++h) {
                for (i64 j = col[h]; j < cols[h]; ++j) sum += element<T>(args.in[0], n, c, i, j);
            }
        }
    }
    return sum;
}

template <typename T>
DEVICE T moved(const MoveArgs& args, int n, int c, i64 y, i64 x) {
    const View& in = args.in[0];
    switch (args.op) {
        case CONCAT: {
            int i = 0;
            while (c >= args.in[i].channels) c -= args.in[i++].channels;
            return element<T>(args.in[i], n, c, y, x);
        }
        case SLICE: return element<T>(in, n, c + args.at, y, x);
        case SLICE_BACKWARD:
            return c >= args.at && c - args.at < in.channels ? element<T>(in, n, c - args.at, y, x) : T(0);
        case CHANNEL_SHUFFLE: {
            const int each = in.channels / args.at;
            return element<T>(in, n, c % args.at * each + c / args.at, y, x);
        }
        case PIXEL_SHUFFLE: {
            const int r = args.at, u = static_cast<int>(floor_mod(y, r)), v = static_cast<int>(floor_mod(x, r));
            return element<T>(in, n, c * r * r + u * r + v, floor_div(y, r), floor_div(x, r));
        }
        case PIXEL_UNSHUFFLE: {
            const int r = args.at;
            return element<T>(in, n, c / (r * r), y * r + c / r % r, x * r + c % r);
        }
        case PAD: return element<T>(in, n, c, shown(args.axes[0], y), shown(args.axes[1], x));
        case PAD_CONSTANT: {
            y -= args.axes[0].before;
            x -= args.axes[1].before;
            const bool is_inside = y >= 0 && y < args.axes[0].input && x >= 0 && x < args.axes[1].input;
            return is_inside ? element<T>(in, n, c, y, x) : static_cast<T>(args.number);
        }
        case BROADCAST: return static_cast<T>(args.number) * element<T>(in, n, c, 0, 0);
        default: {
            const Extremum& at = static_cast<const Extremum*>(args.extrema)[n * args.out.channels + c];
            return at.found != 0 && at.row == y && at.col == x ? element<T>(in, n, c, 0, 0) : T(0);
        }
    }
}

template <typename T>
DEVICE T resampled(const MoveArgs& args, int n, int c, i64 y, i64 x) {
    if (args.op == RESIZE) return resized<T>(args, n, c, y, x);
    return args.op == PAD_BACKWARD ? padded_back<T>(args, n, c, y, x) : resized_back<T>(args, n, c, y, x);
}

template <typename T>
DEVICE void move_elements(const MoveArgs& args) {
    for_lanes<1>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const int c = (block << args.out.shift) + lane;
        if (c < args.out.channels) pixel<T>(args.out, n, block, y, x)[lane] = moved<T>(args, n, c, y, x);
    });
}

template <typename T>
DEVICE void resample(const MoveArgs& args) {
    for_lanes<1>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const int c = (block << args.out.shift) + lane;
        if (c < args.out.channels) pixel<T>(args.out, n, block, y, x)[lane] = resampled<T>(args, n, c, y, x);
    });
}

KERNEL(move_f32, MoveArgs, 256) { move_elements<float>(args); }
KERNEL(move_f64, MoveArgs, 256) { move_elements<double>(args); }
KERNEL(resample_f32, MoveArgs, 256) { resample<float>(args); }
KERNEL(resample_f64, MoveArgs, 256) { resample<double>(args); }
