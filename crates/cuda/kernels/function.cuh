// Functions of one element and their gradients; the numbers of `Function` in `src/args.rs`.
#pragma once
#include "math.cuh"

struct Function {
    int kind;
    int bits;  // of a power: the whole size, its sign, and whether the exponent is whole and odd
    double a, b, c;
};

enum Kind {
    NO_FUNCTION = 0,
    RELU,
    LEAKY_RELU,
    SIGMOID,
    TANH,
    SILU,
    GELU,
    GELU_TANH,
    CLAMP,
    THRESHOLD,
    ELU,
    SOFTPLUS,
    SOFTSIGN,
    HARD_SIGMOID,
    HARD_SWISH,
    MISH,
    LOG_SIGMOID,
    EXP,
    LOG,
    SQRT,
    ABS,
    NEG,
    RECIPROCAL,
    WHOLE_POWER,
    REAL_POWER,
    NO_GRADIENT
};

constexpr int POWER_SIZE = 31, POWER_INVERTS = 32, POWER_IS_WHOLE = 64, POWER_IS_ODD = 128;

template <typename T>
DEVICE T clamped(T x, T most) {
    x = x < T(0) ? T(0) : x;
    return x > most ? most : x;
}

DEVICE double power_of(const Function& f, double x) {
    return f.kind == WHOLE_POWER
               ? whole_power(x, f.bits & POWER_SIZE, (f.bits & POWER_INVERTS) != 0)
               : real_power(x, f.a, (f.bits & POWER_IS_WHOLE) != 0, (f.bits & POWER_IS_ODD) != 0);
}

template <typename T>
DEVICE T apply(const Function& f, T x) {
    const T a = static_cast<T>(f.a), b = static_cast<T>(f.b), c = static_cast<T>(f.c);
    switch (f.kind) {
        case RELU: return x <= T(0) ? T(0) : x;
        case LEAKY_RELU: return x > T(0) ? x : x * a;
        case SIGMOID: return sigmoid(x);
        case TANH: return hyperbolic_tangent(x);
        case SILU: return x * sigmoid(x);
        case GELU: return gelu(x);
        case GELU_TANH: return gelu_tanh(x);
        case CLAMP: x = x < a ? a : x; return x > b ? b : x;
        case THRESHOLD: return x <= a ? b : x;
        case ELU: {
            const T below = b * exponential_less_one(x * c);
            return x > T(0) ? x * a : below;
        }
        case SOFTPLUS: {
            const double z = static_cast<double>(x) * f.a;
            const T bent = static_cast<T>(softplus(z) / f.a);
            return z > f.b ? x : bent;
        }
        case SOFTSIGN: return x / (T(1) + absolute(x));
        case HARD_SIGMOID: return clamped(x + T(3), T(6)) / T(6);
        case HARD_SWISH: return x * clamped(x + T(3), T(6)) / T(6);
        case MISH: return mish(x);
        case LOG_SIGMOID: return static_cast<T>(-softplus(-static_cast<double>(x)));
        case EXP: return exponential(x);
        case LOG: return static_cast<T>(logarithm(x));
        case SQRT: return square_root(x);
        case ABS: return absolute(x);
        case NEG: return -x;
        case RECIPROCAL: return T(1) / x;
        case WHOLE_POWER:
        case REAL_POWER: return static_cast<T>(power_of(f, x));
        default: return x;
    }
}

// The gradient, of what the function saved. Of a power, `f` is that of the exponent less one, and `b` the exponent.
template <typename T>
DEVICE T gradient(const Function& f, T g, T x) {
    const T a = static_cast<T>(f.a), b = static_cast<T>(f.b), c = static_cast<T>(f.c);
    switch (f.kind) {
        case RELU: return x <= T(0) ? T(0) : g;
        case LEAKY_RELU: return x > T(0) ? g : g * a;
        case SIGMOID: return g * (x * (T(1) - x));
        case TANH: return g * (T(1) - x * x);
        case SILU: return g * silu_slope(x);
        case GELU: return g * gelu_slope(x);
        case GELU_TANH: return g * gelu_tanh_slope(x);
        case CLAMP: g = x <= a ? T(0) : g; return x >= b ? T(0) : g;
        case THRESHOLD: return x <= a ? T(0) : g;
        case ELU: {
            const T below = b * c * exponential(x * c);
            return g * (x <= T(0) ? below : a);
        }
        case SOFTPLUS: {
            const T z = x * a, slope = sigmoid(z);
            return z > b ? g : g * slope;
        }
        case SOFTSIGN: return g / ((T(1) + absolute(x)) * (T(1) + absolute(x)));
        case HARD_SIGMOID: g = x <= T(-3) ? T(0) : g / T(6); return x >= T(3) ? T(0) : g;
        case HARD_SWISH: {
            T between = g * (x / T(3) + T(0.5));
            between = x <= T(-3) ? T(0) : between;
            return x < T(3) ? between : g;
        }
        case MISH: return g * mish_slope(x);
        case LOG_SIGMOID: return g * sigmoid(-x);
        case EXP: return g * x;
        case LOG: return g / x;
        case SQRT: return g / (x + x);
        case ABS: return x > T(0) ? g : x < T(0) ? -g : g * T(0);
        case NEG: return -g;
        case RECIPROCAL: return -(g * (x * x));
        case WHOLE_POWER:
        case REAL_POWER: return static_cast<T>(static_cast<double>(g) * (f.b * power_of(f, x)));
        case NO_GRADIENT: return T(0);
        default: return g;
    }
}
