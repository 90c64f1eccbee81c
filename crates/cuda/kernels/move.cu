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
    SCATTER
};

enum PadMode { REFLECT, REPLICATE, CIRCULAR };

// An axis of padding.
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
    int at, by;  // the first channel of a slice, groups, or a factor of height; one of width
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
            const int r = args.at, s = args.by;
            const int u = static_cast<int>(floor_mod(y, r)), v = static_cast<int>(floor_mod(x, s));
            return element<T>(in, n, (c * r + u) * s + v, floor_div(y, r), floor_div(x, s));
        }
        case PIXEL_UNSHUFFLE: {
            const int r = args.at, s = args.by;
            return element<T>(in, n, c / (r * s), y * r + c / s % r, x * s + c % s);
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
DEVICE void move_elements(const MoveArgs& args) {
    for_lanes<1>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const int c = (block << args.out.shift) + lane;
        if (c < args.out.channels) pixel<T>(args.out, n, block, y, x)[lane] = moved<T>(args, n, c, y, x);
    });
}

template <typename T>
DEVICE void pad_back(const MoveArgs& args) {
    for_lanes<1>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const int c = (block << args.out.shift) + lane;
        if (c < args.out.channels) pixel<T>(args.out, n, block, y, x)[lane] = padded_back<T>(args, n, c, y, x);
    });
}

// A tensor of the caller: element (n, c, y, x) lies at data + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3].
struct StridedArgs {
    View window;
    Part part;
    void* data;
    i64 strides[4];
};

template <typename T, bool IMPORTS>
DEVICE void copy_strided(const StridedArgs& args) {
    for_lanes<1>(args.window, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const int c = (block << args.window.shift) + lane;
        if (c >= args.window.channels) return;
        T* inside = pixel<T>(args.window, n, block, y, x) + lane;
        T* outside = static_cast<T*>(args.data) + n * args.strides[0] + c * args.strides[1] + y * args.strides[2] +
                     x * args.strides[3];
        if (IMPORTS) {
            *inside = *outside;
        } else {
            *outside = *inside;
        }
    });
}

KERNEL(move_f32, MoveArgs, 256) { move_elements<float>(args); }
KERNEL(move_f64, MoveArgs, 256) { move_elements<double>(args); }
KERNEL(pad_back_f32, MoveArgs, 256) { pad_back<float>(args); }
KERNEL(pad_back_f64, MoveArgs, 256) { pad_back<double>(args); }
KERNEL(import_f32, StridedArgs, 256) { copy_strided<float, true>(args); }
KERNEL(import_f64, StridedArgs, 256) { copy_strided<double, true>(args); }
KERNEL(export_f32, StridedArgs, 256) { copy_strided<float, false>(args); }
KERNEL(export_f64, StridedArgs, 256) { copy_strided<double, false>(args); }
