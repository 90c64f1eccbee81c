// Functions of one number over fused multiply-adds, step by step those of the CPU backend (`tiled-cpu`, `ops/math.rs` and
// `ops/powers.rs`, which give their sources and errors): the same bits as there with AVX2 and AVX-512.
#pragma once
#include "device.cuh"

DEVICE float absolute(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffffu); }
DEVICE double absolute(double x) { return __longlong_as_double(__double_as_longlong(x) & 0x7fffffffffffffffll); }
DEVICE float square_root(float x) { return __fsqrt_rn(x); }
DEVICE double square_root(double x) { return __dsqrt_rn(x); }
DEVICE bool is_negative(double x) { return __double_as_longlong(x) < 0; }

// Horner's rule, the highest power first.
template <typename T, int N>
DEVICE T polynomial(T x, const double (&coefficients)[N]) {
    T sum = static_cast<T>(coefficients[0]);
#pragma unroll
    for (int i = 1; i < N; ++i) sum = multiply_add(sum, x, static_cast<T>(coefficients[i]));
    return sum;
}

// `2^k`, a normal number.
DEVICE float power_of_two(int k) { return __uint_as_float((static_cast<unsigned>(k) + 127u) << 23); }
DEVICE double power_of_two(i64 k) {
    return __longlong_as_double(static_cast<i64>((static_cast<u64>(k) + 1023ull) << 52));
}

// k and r where `x = k·ln 2 + r`, and `rounded` is `x/ln 2 + 1.5·2^23`.
DEVICE int remainder_of(float x, float rounded, float& r) {
    const float round = 12582912.0f, whole = rounded - round;
    r = multiply_add(whole, -0.6933594f, x);
    r = multiply_add(whole, 2.1219444e-4f, r);
    return static_cast<int>(__float_as_uint(rounded) - __float_as_uint(round));
}

// `e^r − 1`.
DEVICE float power_above_one(float r) {
    const double coefficients[] = {0.000198756915, 1.3981999507e-3, 8.3334519073e-3,
                                   0.041665795894, 0.16666665459,   0.50000001201};
    return multiply_add(polynomial(r, coefficients), r * r, r);
}

// k and `e^r − 1` where `x = k·ln 2 + r`, for x between −104 and 89.
DEVICE int reduced(float x, float& above_one) {
    float r;
    const int k = remainder_of(x, multiply_add(x, 1.44269504088896340735992468100189214f, 12582912.0f), r);
    above_one = power_above_one(r);
    return k;
}

// k and r where `x = k·ln 2 + r`.
DEVICE i64 remainder_of(double x, double& r) {
    const double round = 6755399441055744.0;
    const double rounded = multiply_add(x, 1.44269504088896340735992468100189214, round);
    const double whole = rounded - round;
    r = multiply_add(whole, -0.6931471803691238, x);
    r = multiply_add(whole, -1.9082149292705877e-10, r);
    // of what is no number it is any whole number
    return static_cast<i64>(static_cast<u64>(__double_as_longlong(rounded)) -
                            static_cast<u64>(__double_as_longlong(round)));
}

// k and `e^r − 1` for x between −746 and 710.
DEVICE i64 reduced(double x, double& above_one) {
    double r;
    const i64 k = remainder_of(x, r);
    const double coefficients[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                   1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                   1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
    above_one = multiply_add(polynomial(r, coefficients), r * r, r);
    return k;
}

DEVICE float exponential(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float above_one;
    const int k = reduced(x, above_one);
    // 2^k in two steps, so that results below the least normal number are rounded once
    const int half = k >> 1;
    return (above_one + 1.0f) * power_of_two(half) * power_of_two(k - half);
}

DEVICE double exponential(double x) {
    x = x > 710.0 ? 710.0 : x;
    x = x < -746.0 ? -746.0 : x;
    double above_one;
    const i64 k = reduced(x, above_one);
    const i64 half = k >> 1;
    return (above_one + 1.0) * power_of_two(half) * power_of_two(k - half);
}

// What `power_below` multiplies by: the CPU backend's `scale_of_powers`.
template <typename T>
constexpr double SCALE_OF_POWERS = sizeof(T) == sizeof(float) ? 1.0 : 9007199254740992.0;

// `scale·e^(x − largest)` of a value that is not above the largest, as if the difference was not rounded.
DEVICE double power_below(float x, float largest) {
    double difference = static_cast<double>(x) - static_cast<double>(largest);
    difference = difference < -200.0 ? -200.0 : difference;
    const double round = 6755399441055744.0;
    const double rounded = multiply_add(difference, 1.44269504088896340735992468100189214, round);
    const double r = multiply_add(rounded - round, -0.693147180559945309417232121458176568, difference);
    const double coefficients[] = {0.0014061276249551107, 0.008379020699065166, 0.04166477650840168, 0.16666365315456885,
                                   0.5000000434648217,    1.0000000496714303,   1.0};
    // NaN have no bits set where k is added
    const u64 power = static_cast<u64>(__double_as_longlong(polynomial(r, coefficients)));
    return __longlong_as_double(static_cast<i64>(power + (static_cast<u64>(__double_as_longlong(rounded)) << 52)));
}

DEVICE double power_below(double x, double largest) {
    const double difference = x - largest, near = x - difference;
    const double rounded = (x - (difference + near)) + (near - largest);
    const double lost = difference < -746.0 ? -1.0 : rounded;
    double above_one;
    const double power = power_of_two(reduced(difference < -746.0 ? -746.0 : difference, above_one) + 53);
    const double scaled = multiply_add(above_one, power, power);
    return multiply_add(scaled, lost, scaled);
}

// `e^x − 1` for x at most zero; larger ones count as zero.
DEVICE float exponential_less_one(float x) {
    x = x > 0.0f ? 0.0f : x;
    float above_one;
    const float power = power_of_two(reduced(x < -30.0f ? -30.0f : x, above_one));
    return multiply_add(power, above_one, power - 1.0f);
}

DEVICE double exponential_less_one(double x) {
    x = x > 0.0 ? 0.0 : x;
    double above_one;
    const double power = power_of_two(reduced(x < -60.0 ? -60.0 : x, above_one));
    return multiply_add(power, above_one, power - 1.0);
}

DEVICE float tanh_ratio(float square) {
    const double coefficients[] = {-5.70498872745e-3, 0.0206390887954, -0.0537397155531, 0.133314422036,
                                   -0.333332819422};
    return polynomial(square, coefficients);
}

DEVICE double tanh_ratio(double square) {
    const double above[] = {-0.9643991794250522, -99.28772310019185, -1614.6876844170845};
    const double below[] = {1.0, 112.81167849163293, 2235.4883906010045, 4844.063053251255};
    return polynomial(square, above) / polynomial(square, below);
}

template <typename T>
DEVICE T hyperbolic_tangent(T x) {
    const T one = 1, two = 2, size = absolute(x);
    T far = one - two / (exponential(size + size) + one);
    far = x < T(0) ? -far : far;
    const T square = x * x;
    const T near = multiply_add(square * tanh_ratio(square), x, x);
    return size < T(0.625) ? near : far;
}

// `2^−24/(2^−24 + 2^−24·e^(−x))`
DEVICE float sigmoid(float x) {
    const float scale = 1.0f / 16777216.0f;
    float opposite = -x;
    opposite = opposite > 104.0f ? 104.0f : opposite;
    opposite = opposite < -70.0f ? -70.0f : opposite;
    float above_one;
    const int k = reduced(opposite, above_one);
    return scale / multiply_add(above_one + 1.0f, power_of_two(k - 24), scale);
}

DEVICE double sigmoid(double x) {
    const double small = exponential(-absolute(x));
    return (x < 0.0 ? small : 1.0) / (1.0 + small);
}

template <typename T>
DEVICE T silu_slope(T x) {
    const T small = exponential(-absolute(x));
    const T inverse = T(1) / (T(1) + small);
    const T own = x < T(0) ? small * inverse : inverse;
    return multiply_add(x * inverse, small * inverse, own);
}

DEVICE double normal_series(double t) {
    const double coefficients[] = {
        2.125735722398195e-10,  1.5557166904899626e-10, -2.5869951070056548e-9, -1.872105040481009e-9,
        1.9337667121111184e-8,  1.1631754354429562e-8,  -1.2933425358077943e-7, -2.8609115301612044e-8,
        8.758188244245311e-7,   -4.867799483683874e-7,  -5.722073118850262e-6,  1.1192119577541115e-5,
        2.5824549446341203e-5,  -0.00014507704027042086, 0.0001468568327956724, 0.0008778129264476477,
        -0.004873289779014638,  0.014181138709478202,   -0.02934669929481871,   0.04615216058018874,
        -0.05440196507087443,   0.0411383692450726,     0.0017927077427322147,  -0.07012029929277348,
        0.6187563154189138};
    return polynomial(t, coefficients);
}

// `Φ(−a) = ratio·(1 + above_one)·power`, without the ratio `e^(−a²/2)`.
struct Tail {
    float ratio, above_one, power;
};

// From here on Φ(−a) is zero in single precision.
constexpr float FAR = 13.25f;

// The tail of the normal distribution, of a size.
DEVICE Tail tail_of(float size) {
    size = size > FAR ? FAR : size;
    const float square = size * size;
    const float lost = multiply_add(size, size, -square);
    const float round = 12582912.0f;
    const float rounded = multiply_add(square, -0.5f * 1.44269504088896340735992468100189214f, round);
    const float whole = rounded - round;
    const float r = multiply_add(whole, 4.2438889e-4f, multiply_add(whole, -1.38671875f, -square)) - lost;
    const double coefficients[] = {2.16199089e-5, 0.000261715577, 0.00260426449, 0.020833023, 0.12499998, 0.500000018};
    const float above_one = r * polynomial(r, coefficients);
    // pairs of powers, joined by the square
    const float of_two = multiply_add(size, 0.0399554074f, 0.181221098f), of_none = multiply_add(size, 0.435570061f, 0.5f);
    const float above = multiply_add(square, multiply_add(square, 0.00401594676f, of_two), of_none);
    const float of_four = multiply_add(size, 0.0100663407f, 0.100160778f);
    float below = multiply_add(square, of_four, multiply_add(size, 0.464154243f, 1.19412744f));
    below = multiply_add(square, below, multiply_add(size, 1.66902506f, 1.0f));
    const int k = static_cast<int>(__float_as_uint(rounded) - __float_as_uint(round));
    return {above / below, above_one, power_of_two(k)};
}

// `Φ(x)` and `e^(−x²/2)`.
DEVICE double normal(double x, double& bell) {
    const double square = x * x;
    bell = exponential(-0.5 * square);
    const double error = square < 1e150 ? multiply_add(x, x, -square) : 0.0;
    bell = bell - bell * (0.5 * error);
    const double root_half = 0.707106781186547524400844362104849039;
    double size = absolute(x) * root_half;
    size = size > 64.0 ? 64.0 : size;
    // one division for both quotients
    const double below = size + 3.75, denominator = multiply_add(2.0, size, 1.0);
    const double inverse = 1.0 / (below * denominator);
    const double t = (size - 3.75) * (denominator * inverse);
    const double tail = normal_series(t) * bell * (below * inverse);
    return x < 0.0 ? tail : 1.0 - tail;
}

// `max(x, 0) − |x|·Φ(−|x|)`.
DEVICE float gelu(float x) {
    const float size = absolute(x > FAR ? FAR : x);
    const Tail tail = tail_of(size);
    float scaled = size * tail.ratio;
    scaled = multiply_add(scaled, tail.above_one, scaled);
    return multiply_add(-scaled, tail.power, x < 0.0f ? 0.0f : x);
}

DEVICE double gelu(double x) {
    double bell;
    return x * normal(x, bell);
}

// `1/√(2π)`.
constexpr double DENSITY = 1.12837916709551257389615890312154517 * 0.707106781186547524400844362104849039 / 2.0;

DEVICE float gelu_slope(float x) {
    const Tail tail = tail_of(absolute(x));
    const float ratio = x < 0.0f ? tail.ratio : -tail.ratio;
    const float factor = multiply_add(x, static_cast<float>(DENSITY), ratio);
    return multiply_add(multiply_add(factor, tail.above_one, factor), tail.power, x < 0.0f ? 0.0f : 1.0f);
}

DEVICE double gelu_slope(double x) {
    double bell;
    const double below = normal(x, bell);
    return multiply_add(x * bell, DENSITY, below);
}

constexpr double GELU_TANH_SLOPE =
    2.0 * 1.12837916709551257389615890312154517 * 0.707106781186547524400844362104849039;
constexpr double GELU_TANH_CUBIC = 0.044715;

// 20 and `least` where a value is past them.
DEVICE double bounded(float x, float least) {
    x = x < least ? least : x;
    return x > 20.0f ? 20.0f : x;
}

// `e^(−2u)` of a bounded x.
DEVICE double falling_power(double x) {
    const double slope = -GELU_TANH_SLOPE * 1.44269504088896340735992468100189214, round = 6755399441055744.0;
    const double exponent = x * multiply_add(slope * GELU_TANH_CUBIC, x * x, slope);
    const double rounded = exponent + round;
    const double coefficients[] = {0.00015594717317738072, 0.0013406659164133547, 0.009617692792759041,
                                   0.05550310509100394,    0.2402265278419053,    0.6931472149895572,
                                   1.0};
    const double power = polynomial(exponent - (rounded - round), coefficients);
    const u64 bits = static_cast<u64>(__double_as_longlong(rounded)) << 52;
    return power * __longlong_as_double(static_cast<i64>(bits + (u64{1023} << 52)));
}

DEVICE float gelu_tanh(float x) {
    return static_cast<float>(static_cast<double>(x) / (1.0 + falling_power(bounded(x, -21.16f))));
}

DEVICE double gelu_tanh(double x) {
    return x * sigmoid(GELU_TANH_SLOPE * x * multiply_add(GELU_TANH_CUBIC, x * x, 1.0));
}

DEVICE float gelu_tanh_slope(float x) {
    const double wide = bounded(x, -20.0f);
    const double slope = GELU_TANH_SLOPE * multiply_add(3.0 * GELU_TANH_CUBIC, wide * wide, 1.0);
    const double power = falling_power(wide);
    const double own = 1.0 / (1.0 + power);
    return static_cast<float>(multiply_add(wide * slope, power * own * own, own));
}

DEVICE double gelu_tanh_slope(double x) {
    const double square = x * x;
    const double argument = GELU_TANH_SLOPE * x * multiply_add(GELU_TANH_CUBIC, square, 1.0);
    const double slope = GELU_TANH_SLOPE * multiply_add(3.0 * GELU_TANH_CUBIC, square, 1.0);
    const double small = exponential(-absolute(argument));
    const double inverse = 1.0 / (1.0 + small);
    const double own = x < 0.0 ? small * inverse : inverse;
    // the exponential dies before x·u′ overflows, but 0·∞ would not
    const double product = small == 0.0 ? 0.0 : x * slope * (small * inverse * inverse);
    return own + product;
}

// The natural logarithm: NaN below zero.
DEVICE double logarithm(double x) {
    const i64 root_half = 0x3fe6a09e667f3bcdll;
    const double magic = 4503599627370496.0;
    const bool is_small = x < 2.2250738585072014e-308;
    const double scaled = is_small ? x * 18014398509481984.0 : x;
    const u64 bits = static_cast<u64>(__double_as_longlong(scaled)) +
                     (static_cast<u64>(__double_as_longlong(1.0)) - static_cast<u64>(root_half));
    const double mantissa =
        __longlong_as_double(static_cast<i64>((bits & 0x000fffffffffffffull) + static_cast<u64>(root_half)));
    const double exponent =
        __longlong_as_double(static_cast<i64>(static_cast<u64>(__double_as_longlong(magic)) | (bits >> 52))) -
        (magic + 1023.0);
    const double k = exponent - (is_small ? 54.0 : 0.0);
    const double f = mantissa - 1.0;
    const double half_square = 0.5 * f * f;
    const double s = f / (2.0 + f);
    const double square = s * s;
    const double coefficients[] = {0.14798198605116586, 0.15313837699209373, 0.1818357216161805, 0.22222198432149784,
                                   0.2857142874366239,  0.3999999999940942,  0.6666666666666735};
    const double low = 1.9082149292705877e-10, high = 0.6931471803691238;
    const double tail =
        multiply_add(s, multiply_add(polynomial(square, coefficients), square, half_square), k * low);
    double value = multiply_add(k, high, f - (half_square - tail));
    const double infinity = __longlong_as_double(0x7ff0000000000000ll);
    value = x == 0.0 ? -infinity : value;
    value = x < 0.0 ? __longlong_as_double(0x7ff8000000000000ll) : value;
    return x < infinity ? value : x;
}

// `ln(1 + e^x)`, without overflow.
DEVICE double softplus(double x) {
    const double small = exponential(-absolute(x));
    const double sum = 1.0 + small;
    const double rest = small - (sum - 1.0);
    const double above = x < 0.0 ? 0.0 : x;
    return above + (logarithm(sum) + rest / sum);
}

// `tanh(ln(1 + e^x))`, `e^(−|x|)` and the divisor of the first.
template <typename T>
DEVICE T mish_gate(T x, T& small, T& divisor) {
    const T two = 2;
    small = exponential(-absolute(x));
    const T low = small * (small + two);
    const T high = multiply_add(two, small, T(1));
    const T numerator = x < T(0) ? low : high;
    divisor = numerator + (x < T(0) ? two : two * small * small);
    return numerator / divisor;
}

template <typename T>
DEVICE T mish(T x) {
    T small, divisor;
    return x * mish_gate(x, small, divisor);
}

template <typename T>
DEVICE T mish_slope(T x) {
    T small, divisor;
    const T gate = mish_gate(x, small, divisor);
    const T numerator = x < T(0) ? small : small * small;
    const T product = x * (T(4) * numerator * (T(1) + small) / (divisor * divisor));
    // the exponential dies before x is infinite, but 0·∞ is no number
    return gate + (small == T(0) ? T(0) : product);
}

// `x^n` for a whole n up to 31, of the inverse where it is negative.
DEVICE double whole_power(double x, int size, bool inverts) {
    double base = inverts ? 1.0 / x : x, value = 1.0;
    for (int bit = 0; bit < 5; ++bit) {
        value *= (size >> bit & 1) == 1 ? base : 1.0;
        base *= base;
    }
    return value;
}

// `e^(y·ln |x|)` with the sign that x gives it.
DEVICE double real_power(double x, double exponent, bool is_whole, bool is_odd) {
    const double infinity = __longlong_as_double(0x7ff0000000000000ll), size = absolute(x);
    const double value = exponential(exponent * logarithm(size));
    const double negative = is_whole ? -value : __longlong_as_double(0x7ff8000000000000ll);
    const bool has_none = x < 0.0 && size < infinity && !is_whole;
    const bool turns = is_negative(x) && is_odd;
    return has_none || turns ? negative : value;
}

// The natural logarithm of a normal number above zero.
DEVICE double normal_logarithm(double x) {
    const u64 root = 0x3fe6a09e667f3bcdull, magic = 0x4330000000000000ull;
    const u64 shifted = static_cast<u64>(__double_as_longlong(x)) - root;
    const double m = __longlong_as_double(static_cast<i64>((shifted & 0x000fffffffffffffull) + root));
    const u64 biased = ((shifted >> 52) + 1023) & 0x7ff;
    const double k = __longlong_as_double(static_cast<i64>(magic | biased)) -
                     __longlong_as_double(static_cast<i64>(magic)) - 1023.0;
    const double t = (m - 1.0) / (m + 1.0), square = t * t;
    const double coefficients[] = {2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0, 2.0 / 11.0,
                                   2.0 / 9.0,  2.0 / 7.0,  2.0 / 5.0,  2.0 / 3.0,  2.0};
    const double near = multiply_add(k, 1.9082149292705877e-10, t * polynomial(square, coefficients));
    const double value = multiply_add(k, 0.6931471803691238, near);
    return x < __longlong_as_double(0x7ff0000000000000ll) ? value : x;
}

// `x^y` for x above the least normal number.
DEVICE double power(double x, double y) { return exponential(y * normal_logarithm(x)); }
