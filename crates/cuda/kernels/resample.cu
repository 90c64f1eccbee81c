// Resampling of the axes by any scale, pooling over parts of them, and the gradients of both.
#include "device.cuh"

enum Filter { NEAREST, LINEAR, CUBIC, AREA };
enum Rounding { FLOOR, CEIL, HALF_DOWN, HALF_UP };
enum ResampleOp { RESIZE, RESIZE_BACKWARD, AVERAGE, AVERAGE_BACKWARD, MAX, MAX_BACKWARD };

// Along an axis: output o lies at (step·o + start)/unit.
struct Resampling {
    i64 input, output;
    i64 step, start, unit;
    double slope;  // of the cubic filter
    int filter, rounding, drops_outside, unused;
};

struct ResampleArgs {
    View out, in[2];
    Part part;
    Resampling axes[2];
    int op, unused;
};

DEVICE i64 numerator_of(const Resampling& axis, i64 o) {
    const i64 numerator = axis.step * o + axis.start;
    return axis.filter == LINEAR && numerator < 0 ? 0 : numerator;
}

DEVICE i64 clipped(const Resampling& axis, i64 i) { return i < 0 ? 0 : i > axis.input - 1 ? axis.input - 1 : i; }

// The first and the last input that output o reads.
DEVICE void taps(const Resampling& axis, i64 o, i64& first, i64& last) {
    const i64 numerator = numerator_of(axis, o), floor = floor_div(numerator, axis.unit);
    first = last = floor;
    if (axis.filter == NEAREST) {
        const i64 twice = 2 * (numerator - floor * axis.unit);
        const bool is_up = axis.rounding == CEIL        ? twice > 0
                           : axis.rounding == HALF_DOWN ? twice > axis.unit
                           : axis.rounding == HALF_UP   ? twice >= axis.unit
                                                        : false;
        first = last = floor + is_up;
    } else if (axis.filter == LINEAR) {
        last = floor + 1;
    } else if (axis.filter == CUBIC) {
        first = floor - 1;
        last = floor + 2;
    } else {
        last = floor_div(numerator + axis.input + axis.unit - 1, axis.unit) - 1;
    }
    first = clipped(axis, first);
    last = clipped(axis, last);
}

// Keys' kernel of slope a, within one pixel and between one and two.
DEVICE double near_weight(double a, double x) { return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0; }
DEVICE double far_weight(double a, double x) { return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a; }

// The inputs that output o reads from `first` on, and what each weighs; returns how many.
template <typename T>
DEVICE int weigh(const Resampling& axis, i64 o, i64& first, T (&weights)[4]) {
    i64 last;
    taps(axis, o, first, last);
    weights[0] = T(1);
    if (axis.filter == NEAREST || (axis.filter == LINEAR && first == last)) return 1;
    const i64 numerator = numerator_of(axis, o), floor = floor_div(numerator, axis.unit);
    const double t = static_cast<double>(numerator - floor * axis.unit) / static_cast<double>(axis.unit);
    if (axis.filter == LINEAR) {
        weights[1] = static_cast<T>(t);
        weights[0] = T(1) - weights[1];
        return 2;
    }
    const double a = axis.slope;
    const double all[4] = {far_weight(a, 1.0 + t), near_weight(a, t), near_weight(a, 1.0 - t), far_weight(a, 2.0 - t)};
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (int k = 0; k < 4; ++k) {
        const i64 i = floor - 1 + k;
        const bool is_inside = i >= 0 && i < axis.input;
        if (!is_inside && axis.drops_outside != 0) continue;
        const i64 place = clipped(axis, i) - first;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (j == place) sums[j] += all[k];
        }
    }
    if (axis.drops_outside != 0) {
        const double total = sums[0] + sums[1] + sums[2] + sums[3];
        for (int j = 0; j < 4; ++j) sums[j] /= total;
    }
    for (int j = 0; j < 4; ++j) weights[j] = static_cast<T>(sums[j]);
    return static_cast<int>(last - first) + 1;
}

// The first output whose last input is at least `input` (or whose first input is, `of_first`), from a guess that is near it.
DEVICE i64 first_output(const Resampling& axis, i64 input, bool of_first) {
    auto reaches = [&](i64 o) {
        i64 first, last;
        taps(axis, o, first, last);
        return (of_first ? first : last) >= input;
    };
    i64 o = 0;
    if (axis.step > 0) {
        const double position = static_cast<double>(input) * static_cast<double>(axis.unit) - static_cast<double>(axis.start);
        o = static_cast<i64>(position / static_cast<double>(axis.step));
    }
    if (o < 0) o = 0;
    if (o > axis.output) o = axis.output;
    while (o > 0 && reaches(o - 1)) --o;
    while (o < axis.output && !reaches(o)) ++o;
    return o;
}

// The outputs that read input i.
DEVICE void readers(const Resampling& axis, i64 i, i64& begin, i64& end) {
    begin = first_output(axis, i, false);
    end = first_output(axis, i + 1, true);
}

template <typename T>
DEVICE T resized(const ResampleArgs& args, int n, int c, i64 y, i64 x) {
    i64 row0, col0;
    T rows[4], cols[4];
    const int height = weigh(args.axes[0], y, row0, rows), width = weigh(args.axes[1], x, col0, cols);
    auto column = [&](i64 col) {
        const T first = element<T>(args.in[0], n, c, row0, col);
        if (height == 1) return first;
        T sum = rows[0] * first;
        for (int i = 1; i < height; ++i) sum = multiply_add(rows[i], element<T>(args.in[0], n, c, row0 + i, col), sum);
        return sum;
    };
    const T first = column(col0);
    if (width == 1) return first;
    T sum = cols[0] * first;
    for (int j = 1; j < width; ++j) sum = multiply_add(cols[j], column(col0 + j), sum);
    return sum;
}

// What output o gives to input i.
template <typename T>
DEVICE T weight_of(const Resampling& axis, i64 o, i64 i) {
    i64 first;
    T weights[4];
    const int count = weigh(axis, o, first, weights);
    T weight = T(0);
    for (int k = 0; k < count; ++k) {
        if (first + k == i) weight = weights[k];
    }
    return weight;
}

template <typename T>
DEVICE T resized_back(const ResampleArgs& args, int n, int c, i64 y, i64 x) {
    i64 row0, row1, col0, col1;
    readers(args.axes[0], y, row0, row1);
    readers(args.axes[1], x, col0, col1);
    T sum = T(0);
    for (i64 col = col0; col < col1; ++col) {
        T column = T(0);
        for (i64 row = row0; row < row1; ++row) {
            column = multiply_add(weight_of<T>(args.axes[0], row, y), element<T>(args.in[0], n, c, row, col), column);
        }
        sum = multiply_add(weight_of<T>(args.axes[1], col, x), column, sum);
    }
    return sum;
}

// The inputs of the part that output (y, x) stands for.
struct Cell {
    i64 top, bottom, left, right;  // the last ones among them
    DEVICE double size() const { return static_cast<double>((bottom - top + 1) * (right - left + 1)); }
};
DEVICE Cell cell_of(const ResampleArgs& args, i64 y, i64 x) {
    Cell cell;
    taps(args.axes[0], y, cell.top, cell.bottom);
    taps(args.axes[1], x, cell.left, cell.right);
    return cell;
}

template <typename T>
DEVICE T average(const ResampleArgs& args, int n, int c, i64 y, i64 x) {
    const Cell cell = cell_of(args, y, x);
    double sum = 0.0;
    for (i64 row = cell.top; row <= cell.bottom; ++row) {
        for (i64 col = cell.left; col <= cell.right; ++col) {
            sum += static_cast<double>(element<T>(args.in[0], n, c, row, col));
        }
    }
    return static_cast<T>(sum / cell.size());
}

template <typename T>
DEVICE bool wins(T x, T held) {
    return !(x <= held) && !is_nan(held);
}

template <typename T>
DEVICE T maximum(const ResampleArgs& args, int n, int c, i64 y, i64 x) {
    const Cell cell = cell_of(args, y, x);
    T held = element<T>(args.in[0], n, c, cell.top, cell.left);
    for (i64 row = cell.top; row <= cell.bottom; ++row) {
        for (i64 col = cell.left; col <= cell.right; ++col) {
            const T taken = element<T>(args.in[0], n, c, row, col);
            if (wins(taken, held)) held = taken;
        }
    }
    return held;
}

// Whether (y, x) is the first maximum of a cell: most elements soon meet one that is larger.
template <typename T>
DEVICE bool is_maximum(const View& in, const Cell& cell, int n, int c, i64 y, i64 x) {
    const T own = element<T>(in, n, c, y, x);
    for (i64 row = cell.top; row <= cell.bottom; ++row) {
        for (i64 col = cell.left; col <= cell.right; ++col) {
            if (row == y && col == x) continue;
            const T other = element<T>(in, n, c, row, col);
            const bool is_earlier = row < y || (row == y && col < x);
            if (is_earlier ? !wins(own, other) : wins(other, own)) return false;
        }
    }
    return true;
}

template <typename T>
DEVICE T pooled_back(const ResampleArgs& args, int n, int c, i64 y, i64 x) {
    i64 row0, row1, col0, col1;
    readers(args.axes[0], y, row0, row1);
    readers(args.axes[1], x, col0, col1);
    double shares = 0.0;
    T sum = T(0);
    for (i64 row = row0; row < row1; ++row) {
        for (i64 col = col0; col < col1; ++col) {
            const Cell cell = cell_of(args, row, col);
            const T gradient = element<T>(args.in[0], n, c, row, col);
            if (args.op == AVERAGE_BACKWARD) {
                shares += static_cast<double>(gradient) / cell.size();
            } else if (is_maximum<T>(args.in[1], cell, n, c, y, x)) {
                sum += gradient;
            }
        }
    }
    return args.op == AVERAGE_BACKWARD ? static_cast<T>(shares) : sum;
}

template <typename T>
DEVICE T resampled(const ResampleArgs& args, int n, int c, i64 y, i64 x) {
    switch (args.op) {
        case RESIZE: return resized<T>(args, n, c, y, x);
        case RESIZE_BACKWARD: return resized_back<T>(args, n, c, y, x);
        case AVERAGE: return average<T>(args, n, c, y, x);
        case MAX: return maximum<T>(args, n, c, y, x);
        default: return pooled_back<T>(args, n, c, y, x);
    }
}

template <typename T>
DEVICE void resample(const ResampleArgs& args) {
    for_lanes<1>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const int c = (block << args.out.shift) + lane;
        if (c < args.out.channels) pixel<T>(args.out, n, block, y, x)[lane] = resampled<T>(args, n, c, y, x);
    });
}

KERNEL(resample_f32, ResampleArgs, 256) { resample<float>(args); }
KERNEL(resample_f64, ResampleArgs, 256) { resample<double>(args); }
