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

// `Kernel::keeps` for some channels of a row.
template <int N>
struct Kept {
    u64 lines[N], least;  // the bits of the row, and the least ones that keep an element
    bool are_alike;       // whether all columns are
    DEVICE Kept(const MapArgs& args, int n, int c, i64 y) : are_alike(args.dropped != 0) {
        const u64 image = mixed(args.seed ^ static_cast<u64>(args.dropped == 3 ? 0 : n));
        for (int i = 0; i < N; ++i) {
            const u64 plane = mixed(image ^ static_cast<u64>(args.dropped >= 2 ? 0 : c + i));
            lines[i] = mixed(plane ^ static_cast<u64>(are_alike ? 0 : y));
        }
        // of 53 bits
        const double share = args.number * 9007199254740992.0;
        least = static_cast<u64>(share);
        if (static_cast<double>(least) < share) ++least;
    }
    DEVICE bool at(int lane, i64 x) const {
        return mixed(lines[lane] ^ static_cast<u64>(are_alike ? 0 : x)) >> 11 >= least;
    }
};

// The functions that cost no more than a copy; with the others in it, every kernel would hold as many registers as they take.
template <typename T, int N>
DEVICE Vec<T, N> apply_light(const Function& f, const Vec<T, N>& x) {
    const T a = static_cast<T>(f.a), b = static_cast<T>(f.b);
    switch (f.kind) {
        case RELU: return each_lane<T, N>([&](int i) { return x.at[i] <= T(0) ? T(0) : x.at[i]; });
        case LEAKY_RELU: return each_lane<T, N>([&](int i) { return x.at[i] > T(0) ? x.at[i] : x.at[i] * a; });
        case CLAMP:
            return each_lane<T, N>([&](int i) {
                const T least = x.at[i] < a ? a : x.at[i];
                return least > b ? b : least;
            });
        default: return x;
    }
}

template <typename T, int N>
DEVICE Vec<T, N> gradient_light(const Function& f, const Vec<T, N>& g, const Vec<T, N>& x) {
    const T a = static_cast<T>(f.a), b = static_cast<T>(f.b);
    switch (f.kind) {
        case RELU: return each_lane<T, N>([&](int i) { return x.at[i] <= T(0) ? T(0) : g.at[i]; });
        case LEAKY_RELU: return each_lane<T, N>([&](int i) { return x.at[i] > T(0) ? g.at[i] : g.at[i] * a; });
        case CLAMP:
            return each_lane<T, N>([&](int i) {
                const T above = x.at[i] <= a ? T(0) : g.at[i];
                return x.at[i] >= b ? T(0) : above;
            });
        default: return g;
    }
}

// Numbers for some channels from one on; lanes past the last channel are written and never read.
template <typename T, int N>
DEVICE Vec<T, N> of_channels(const T* numbers, int first, int channels) {
    return each_lane<T, N>([&](int i) { return numbers[first + i < channels ? first + i : 0]; });
}

// Each operation has a loop of its own: what one needs takes no registers of the others.
template <typename T, int N>
DEVICE void map(const MapArgs& args) {
    typedef Vec<T, N> V;
    const auto of_elements = [&](auto f) {
        for_vectors<T, N, (N * sizeof(T) > 16 ? 2 : 4), 2>(args.out, args.in, args.inputs > 1 ? 3 : 1, args.part, [&](int, int, i64) {
            return [f](const V(&in)[2], int) { return f(in[0], in[1]); };
        });
    };
    const auto factors = [&](int which, int n, int c) {
        const int of_image = args.per_image != 0 ? n * args.out.channels : 0;
        const T* all = static_cast<const T*>(args.params) + which * args.factors + of_image;
        // lanes past the last channel are written and never read
        return each_lane<T, N>([&](int i) { return all[c + i < args.out.channels ? c + i : 0]; });
    };
    switch (args.op) {
        case APPLY: return of_elements([&](const V& a, const V&) { return apply_light(args.function, a); });
        case APPLY_GRADIENT:
            return of_elements([&](const V& a, const V& b) { return gradient_light(args.function, a, b); });
        case SUM:
        case PRODUCT:
        case DIFFERENCE_SCALED:
            return of_elements([&](const V& a, const V& b) {
                if (args.op == SUM) return each_lane<T, N>([&](int i) { return a.at[i] + b.at[i]; });
                if (args.op == PRODUCT) return each_lane<T, N>([&](int i) { return a.at[i] * b.at[i]; });
                const T scale = static_cast<T>(args.number);
                return each_lane<T, N>([&](int i) { return (a.at[i] - b.at[i]) * scale; });
            });
        case AFFINE:
            return for_vectors<T, N, 2, 1>(args.out, args.in, 1, args.part, [&](int n, int c, i64) {
                return [&args, p = factors(0, n, c), q = factors(1, n, c)](const V(&in)[1], int) {
                    return apply_light(args.function, each_lane<T, N>([&](int i) {
                                           return multiply_add(in[0].at[i], p.at[i], q.at[i]);
                                       }));
                };
            });
        case COMBINE:
            return for_vectors<T, N, 1, 2>(args.out, args.in, 3, args.part, [&](int n, int c, i64) {
                return [p = factors(0, n, c), q = factors(1, n, c), r = factors(2, n, c)](const V(&in)[2], int) {
                    return each_lane<T, N>([&](int i) {
                        return multiply_add(in[0].at[i], p.at[i], multiply_add(in[1].at[i], q.at[i], r.at[i]));
                    });
                };
            });
        case DROPOUT:
            return for_vectors<T, N, 1, 1>(args.out, args.in, 1, args.part, [&](int n, int c, i64 y) {
                const T scale = static_cast<T>(1.0 / (1.0 - args.number));
                const Kept<N> kept(args, n, c, y);
                return [kept, scale, x = args.part.col0](const V(&in)[1], int col) {
                    return each_lane<T, N>([&](int i) { return kept.at(i, x + col) ? in[0].at[i] * scale : T(0); });
                };
            });
        default:
            return for_vectors<T, N, 1, 1>(args.out, args.in, 0, args.part, [&](int, int, i64) {
                const T value = static_cast<T>(args.number);
                return [value](const V(&)[1], int) { return each_lane<T, N>([&](int) { return value; }); };
            });
    }
}

KERNEL(map_f32_1, MapArgs, 256) { map<float, 1>(args); }
KERNEL(map_f32_4, MapArgs, 256, 3) { map<float, LANES>(args); }
KERNEL(map_f64_1, MapArgs, 256) { map<double, 1>(args); }
KERNEL(map_f64_4, MapArgs, 256) { map<double, LANES>(args); }

// Any function of the elements, or of a convolution's result where it lies. There is one copy of the functions, so lanes take turns.
template <typename T, int N>
DEVICE void function(const MapArgs& args) {
    typedef Vec<T, N> V;
    for_vectors<T, N, 1, 2>(args.out, args.in, args.op == APPLY ? 1 : 3, args.part, [&](int, int, i64) {
        return [&args](const V(&in)[2], int) {
            V a = in[0], b = in[1];
#pragma unroll 1
            for (int i = 0; i < N; ++i) {
                const T value = args.op == APPLY ? apply(args.function, a.at[0]) : gradient(args.function, a.at[0], b.at[0]);
#pragma unroll
                for (int k = 0; k + 1 < N; ++k) a.at[k] = a.at[k + 1], b.at[k] = b.at[k + 1];
                a.at[N - 1] = value;
            }
            return a;
        };
    });
}

KERNEL(function_f32_1, MapArgs, 256) { function<float, 1>(args); }
KERNEL(function_f32_4, MapArgs, 256) { function<float, LANES>(args); }
KERNEL(function_f64_1, MapArgs, 256) { function<double, 1>(args); }
KERNEL(function_f64_4, MapArgs, 256) { function<double, LANES>(args); }

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
        case DIV: return a / b;
        case DIVISOR_BACKWARD: return -a * ((b / c) / c);
        case MINIMUM_BACKWARD: return b > c ? T(0) : b == c ? a * T(0.5) : a;
        case MAXIMUM_BACKWARD: return b < c ? T(0) : b == c ? a * T(0.5) : a;
        case PRELU_BACKWARD: return b > T(0) ? a : c * a;
        default: return b > T(0) ? T(0) : a * b;
    }
}

// Those of two operands that cost no more than a copy.
template <typename T, int N>
DEVICE Vec<T, N> operate_light(int operation, const Vec<T, N>& a, const Vec<T, N>& b) {
    const auto each = [&](auto f) { return each_lane<T, N>([&](int i) { return f(a.at[i], b.at[i]); }); };
    switch (operation) {
        case ADD: return each([](T x, T y) { return x + y; });
        case SUB: return each([](T x, T y) { return x - y; });
        case MUL: return each([](T x, T y) { return x * y; });
        case MINIMUM: return each([](T x, T y) { return x < y || is_nan(x) ? x : y; });
        case MAXIMUM: return each([](T x, T y) { return x > y || is_nan(x) ? x : y; });
        default: return each([](T x, T y) { return x > T(0) ? x : y * x; });
    }
}

// Calls `f` with some lanes of so many operands at each position.
template <typename T, int N, int AT_ONCE, int OPERANDS, typename F>
DEVICE void of_operands(const ArithmeticArgs& args, F f) {
    typedef Vec<T, N> V;
    // of a row
    struct Operand {
        V same;         // what all columns have
        const T* line;  // or a number for each column
    };
    struct Operands {
        Operand at[OPERANDS];
    };
    unsigned read = 0;
    for (int i = 0; i < OPERANDS; ++i) read |= static_cast<unsigned>(args.source[i] == WHOLE) << i;
    for_vectors<T, N, AT_ONCE, OPERANDS>(args.out, args.in, read, args.part, [&](int n, int c, i64 y) {
        Operands operands = {};
#pragma unroll
        for (int operand = 0; operand < OPERANDS; ++operand) {
            const View& in = args.in[operand];
            const int source = args.source[operand], channels = args.out.channels;
            operands.at[operand].same = each_lane<T, N>([&](int i) {
                const int own = c + i < channels ? c + i : 0;
                if (source == PIXEL) return element<T>(in, n, in.channels == 1 ? 0 : own, 0, 0);
                if (source == CHANNEL) return static_cast<const T*>(args.params)[args.param_len == 1 ? 0 : own];
                return static_cast<T>(args.number[operand]);
            });
            if (source == PLANE) operands.at[operand].line = pixel<T>(in, n, 0, y, args.part.col0);
        }
        return [f, operands, &args](const V(&in)[OPERANDS], int col) {
            V values[OPERANDS];
#pragma unroll
            for (int operand = 0; operand < OPERANDS; ++operand) {
                const Operand& own = operands.at[operand];
                values[operand] = args.source[operand] == WHOLE ? in[operand] : own.same;
                if (own.line != nullptr) {
                    const T value = own.line[of_pixels(col, args.in[operand].shift)];
                    values[operand] = each_lane<T, N>([&](int) { return value; });
                }
            }
            return f(values);
        };
    });
}

template <typename T, int N>
DEVICE void arithmetic(const ArithmeticArgs& args) {
    const int operation = args.operation;
    if (operation < DIV || (operation > DIV && operation <= PRELU)) {
        of_operands<T, N, 1, 2>(
            args, [=](const Vec<T, N>(&of)[2]) { return operate_light(operation, of[0], of[1]); });
        return;
    }
    // a lane a thread: divisions take as many registers as there are of them at once
    of_operands<T, 1, 1, 3>(args, [=](const Vec<T, 1>(&of)[3]) {
        return Vec<T, 1>{operate(operation, of[0].at[0], of[1].at[0], of[2].at[0])};
    });
}

KERNEL(arithmetic_f32_1, ArithmeticArgs, 256) { arithmetic<float, 1>(args); }
KERNEL(arithmetic_f32_4, ArithmeticArgs, 256, 3) { arithmetic<float, LANES>(args); }
KERNEL(arithmetic_f64_1, ArithmeticArgs, 256) { arithmetic<double, 1>(args); }
KERNEL(arithmetic_f64_4, ArithmeticArgs, 256) { arithmetic<double, LANES>(args); }
