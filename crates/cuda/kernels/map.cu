// Kernels of which an element depends on the elements of the same position, and of parameters for its channel.
#include "function.cuh"

enum MapOp {
    APPLY,
    APPLY_GRADIENT,
    SUM,
    PRODUCT,
    DIFFERENCE_SCALED,
    AFFINE,
    COMBINE,
    DROPOUT,
    FILL
};

struct MapArgs {
    View out, in[2];
    Part part;
    int op;
    int per_image;  // whether factors belong to the channels of each image
    int dropped;    // what is dropped as one, as in `Dropped`
    int factors;    // how many there are of each
    int inputs, unused;
    const void* params;
    Function function;
    double number;  // a scale, a probability, a constant
    u64 seed;
};

DEVICE u64 mixed(u64 z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// As `Kernel::keeps`.
DEVICE bool keeps(const MapArgs& args, int n, int c, i64 y, i64 x) {
    if (args.dropped != 0) y = x = 0;
    if (args.dropped >= 2) c = 0;
    if (args.dropped == 3) n = 0;
    const u64 plane = mixed(mixed(args.seed ^ static_cast<u64>(n)) ^ static_cast<u64>(c));
    const u64 bits = mixed(mixed(plane ^ static_cast<u64>(y)) ^ static_cast<u64>(x));
    return static_cast<double>(bits >> 11) / 9007199254740992.0 >= args.number;
}

// The functions that cost no more than a copy; with the others in it, every kernel would hold as many registers as they take.
template <typename T>
DEVICE T apply_light(const Function& f, T x) {
    const T a = static_cast<T>(f.a), b = static_cast<T>(f.b);
    switch (f.kind) {
        case RELU: return x <= T(0) ? T(0) : x;
        case LEAKY_RELU: return x > T(0) ? x : x * a;
        case CLAMP: x = x < a ? a : x; return x > b ? b : x;
        default: return x;
    }
}

template <typename T>
DEVICE T gradient_light(const Function& f, T g, T x) {
    const T a = static_cast<T>(f.a), b = static_cast<T>(f.b);
    switch (f.kind) {
        case RELU: return x <= T(0) ? T(0) : g;
        case LEAKY_RELU: return x > T(0) ? g : g * a;
        case CLAMP: g = x <= a ? T(0) : g; return x >= b ? T(0) : g;
        default: return g;
    }
}

template <typename T, int N>
DEVICE void map(const MapArgs& args) {
    for_lanes<N>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        typedef Vec<T, N> V;
        V a = {}, b = {}, result;
        if (args.op != FILL) a = *reinterpret_cast<const V*>(pixel<T>(args.in[0], n, block, y, x) + lane);
        if (args.inputs > 1) b = *reinterpret_cast<const V*>(pixel<T>(args.in[1], n, block, y, x) + lane);
        const int first = (block << args.out.shift) + lane;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            T value = T(0);
            // lanes past the last channel are written and never read
            const int c = first + i < args.out.channels ? first + i : 0;
            switch (args.op) {
                case APPLY: value = apply_light(args.function, a.at[i]); break;
                case APPLY_GRADIENT: value = gradient_light(args.function, a.at[i], b.at[i]); break;
                case SUM: value = a.at[i] + b.at[i]; break;
                case PRODUCT: value = a.at[i] * b.at[i]; break;
                case DIFFERENCE_SCALED: value = (a.at[i] - b.at[i]) * static_cast<T>(args.number); break;
                case AFFINE:
                case COMBINE: {
                    const T* factors = static_cast<const T*>(args.params);
                    const int at = args.per_image != 0 ? n * args.out.channels + c : c;
                    const T p = factors[at], q = factors[args.factors + at];
                    if (args.op == AFFINE) {
                        value = apply_light(args.function, multiply_add(a.at[i], p, q));
                    } else {
                        value = multiply_add(a.at[i], p, multiply_add(b.at[i], q, factors[2 * args.factors + at]));
                    }
                    break;
                }
                case DROPOUT:
                    value = keeps(args, n, c, y, x) ? a.at[i] * static_cast<T>(1.0 / (1.0 - args.number)) : T(0);
                    break;
                default: value = static_cast<T>(args.number); break;
            }
            result.at[i] = value;
        }
        *reinterpret_cast<V*>(pixel<T>(args.out, n, block, y, x) + lane) = result;
    });
}

KERNEL(map_f32_1, MapArgs, 256) { map<float, 1>(args); }
KERNEL(map_f32_4, MapArgs, 256) { map<float, LANES>(args); }
KERNEL(map_f64_1, MapArgs, 256) { map<double, 1>(args); }
KERNEL(map_f64_4, MapArgs, 256) { map<double, LANES>(args); }

// Any function of the elements, or of a convolution's result where it lies; the arithmetic bounds it, so a thread has one lane.
template <typename T>
DEVICE void function(const MapArgs& args) {
    for_lanes<1>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        const T a = pixel<T>(args.in[0], n, block, y, x)[lane];
        T& to = pixel<T>(args.out, n, block, y, x)[lane];
        to = args.op == APPLY ? apply(args.function, a)
                              : gradient(args.function, a, pixel<T>(args.in[1], n, block, y, x)[lane]);
    });
}

KERNEL(function_f32, MapArgs, 256) { function<float>(args); }
KERNEL(function_f64, MapArgs, 256) { function<double>(args); }

// Functions of several values of one position, in the order of `Arithmetic`.
enum Operation {
    ADD,
    SUB,
    MUL,
    DIV,
    MINIMUM,
    MAXIMUM,
    PRELU,
    DIVISOR_BACKWARD,
    MINIMUM_BACKWARD,
    MAXIMUM_BACKWARD,
    PRELU_BACKWARD,
    PRELU_SLOPE
};

// Where an operand comes from, in the order of `Spread`.
enum Source { WHOLE, PIXEL, PLANE, CHANNEL, NUMBER, NOWHERE };

struct ArithmeticArgs {
    View out, in[3];
    Part part;
    int operation;
    int source[3];
    double number[3];
    const void* params;
    int param_len, unused;
};

template <typename T>
DEVICE T operate(int operation, T a, T b, T c) {
    switch (operation) {
        case ADD: return a + b;
        case SUB: return a - b;
        case MUL: return a * b;
        case DIV: return a / b;
        case MINIMUM: return a < b || is_nan(a) ? a : b;
        case MAXIMUM: return a > b || is_nan(a) ? a : b;
        case PRELU: return a > T(0) ? a : b * a;
        case DIVISOR_BACKWARD: return -a * ((b / c) / c);
        case MINIMUM_BACKWARD: return b > c ? T(0) : b == c ? a * T(0.5) : a;
        case MAXIMUM_BACKWARD: return b < c ? T(0) : b == c ? a * T(0.5) : a;
        case PRELU_BACKWARD: return b > T(0) ? a : c * a;
        default: return b > T(0) ? T(0) : a * b;
    }
}

template <typename T, int N>
DEVICE void arithmetic(const ArithmeticArgs& args) {
    for_lanes<N>(args.out, args.part, [&](int n, int block, i64 y, i64 x, int lane) {
        typedef Vec<T, N> V;
        V values[3], result;
        const int first = (block << args.out.shift) + lane;
#pragma unroll
        for (int operand = 0; operand < 3; ++operand) {
            const View& in = args.in[operand];
            const int source = args.source[operand];
            if (source == WHOLE) {
                values[operand] = *reinterpret_cast<const V*>(pixel<T>(in, n, block, y, x) + lane);
                continue;
            }
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const int c = first + i < args.out.channels ? first + i : 0;
                T value = static_cast<T>(args.number[operand]);
                if (source == PIXEL) value = element<T>(in, n, in.channels == 1 ? 0 : c, 0, 0);
                if (source == PLANE) value = element<T>(in, n, 0, y, x);
                if (source == CHANNEL) value = static_cast<const T*>(args.params)[args.param_len == 1 ? 0 : c];
                values[operand].at[i] = value;
            }
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            result.at[i] = operate(args.operation, values[0].at[i], values[1].at[i], values[2].at[i]);
        }
        *reinterpret_cast<V*>(pixel<T>(args.out, n, block, y, x) + lane) = result;
    });
}

KERNEL(arithmetic_f32_1, ArithmeticArgs, 256) { arithmetic<float, 1>(args); }
KERNEL(arithmetic_f32_4, ArithmeticArgs, 256) { arithmetic<float, LANES>(args); }
KERNEL(arithmetic_f64_1, ArithmeticArgs, 256) { arithmetic<double, 1>(args); }
KERNEL(arithmetic_f64_4, ArithmeticArgs, 256) { arithmetic<double, LANES>(args); }
