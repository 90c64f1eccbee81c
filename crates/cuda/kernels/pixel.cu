// Computations of each pixel over its channels, a thread each: sums are in `f64` but for `SUM_CHANNELS`, in the order of the channels, of a
// softmax in that of `sum_of_channels`.
#include "pixel.cuh"

enum PixelOp {
    SOFTMAX,
    LOG_SOFTMAX,
    SOFTMAX_BACKWARD,
    LOG_SOFTMAX_BACKWARD,
    NORM,
    NORM_BACKWARD,
    LOCAL_RESPONSE,
    LOCAL_RESPONSE_BACKWARD,
    ARG_MAX,
    SUM_CHANNELS,
    CROSS_ENTROPY_BACKWARD,
    MAX_CHANNELS,
    MAX_CHANNELS_BACKWARD
};

struct PixelArgs {
    View out, in[2];
    Part part;
    int op;
    int size;     // channels of a window of local response
    int centred;  // whether a norm subtracts the mean
    int unused;
    double eps;                  // of a norm; the scale of a gradient of cross-entropy
    double share, beta, k;       // of local response
};

template <typename T>
DEVICE void statistics(const PixelArgs& args, const Channels<T>& x, int channels, double& mean, double& inverse) {
    mean = 0.0;
    if (args.centred != 0) {
        for (int c = 0; c < channels; ++c) mean += static_cast<double>(x[c]);
        mean = mean / channels;
    }
    double squares = 0.0;
    for (int c = 0; c < channels; ++c) {
        const double centred = static_cast<double>(x[c]) - mean;
        squares = multiply_add(centred, centred, squares);
    }
    inverse = 1.0 / square_root(squares / channels + args.eps);
}

// The base of a power of local response.
template <typename T>
DEVICE double response(const PixelArgs& args, const Channels<T>& x, int c, int channels) {
    const int begin = c - args.size / 2, end = c + (args.size + 1) / 2;
    double sum = 0.0;
    for (int i = begin < 0 ? 0 : begin; i < (end < channels ? end : channels); ++i) {
        const double value = x[i];
        sum = multiply_add(value, value, sum);
    }
    return multiply_add(args.share, sum, args.k);
}

// The first channel with the maximum; the first NaN wins.
template <typename T>
DEVICE int largest_channel(const Channels<T>& x, int channels) {
    int largest = 0;
    for (int c = 1; c < channels; ++c) {
        const T value = x[c], before = x[largest];
        if (value > before || (is_nan(value) && !is_nan(before))) largest = c;
    }
    return largest;
}

template <typename T>
DEVICE void of_pixel(const PixelArgs& args, int n, i64 y, i64 x) {
    const Channels<T> in(args.in[0], n, y, x), other(args.in[1], n, y, x), out(args.out, n, y, x);
    const int channels = args.in[0].channels;
    const double no_number = __longlong_as_double(0x7ff8000000000000ll);
    double a, b;
    T largest;
    switch (args.op) {
        case SOFTMAX:
            softmax_of(in, channels, largest, b);
            b = 1.0 / b;
            for (int c = 0; c < channels; ++c) {
                out[c] = static_cast<T>(power_below(in[c], largest) * b);
            }
            break;
        case LOG_SOFTMAX:
            softmax_of(in, channels, largest, b);
            b = logarithm(b / SCALE_OF_POWERS<T>);
            for (int c = 0; c < channels; ++c) {
                out[c] = static_cast<T>((static_cast<double>(in[c]) - static_cast<double>(largest)) - b);
            }
            break;
        case SOFTMAX_BACKWARD:
            a = sum_of_channels(channels, [&](int c, double sum) {
                return multiply_add(static_cast<double>(in[c]), static_cast<double>(other[c]), sum);
            });
            for (int c = 0; c < channels; ++c) {
                out[c] = static_cast<T>(static_cast<double>(other[c]) * (static_cast<double>(in[c]) - a));
            }
            break;
        case LOG_SOFTMAX_BACKWARD:
            a = sum_of_channels(channels, [&](int c, double sum) { return sum + static_cast<double>(in[c]); });
            for (int c = 0; c < channels; ++c) {
                out[c] = static_cast<T>(static_cast<double>(in[c]) - exponential(static_cast<double>(other[c])) * a);
            }
            break;
        case NORM:
            statistics(args, in, channels, a, b);
            for (int c = 0; c < channels; ++c) out[c] = static_cast<T>((static_cast<double>(in[c]) - a) * b);
            break;
        case NORM_BACKWARD: {
            statistics(args, other, channels, a, b);
            double sum = 0.0, dot = 0.0;
            for (int c = 0; c < channels; ++c) {
                const double g = in[c];
                sum += g;
                dot = multiply_add(g, (static_cast<double>(other[c]) - a) * b, dot);
            }
            sum = args.centred != 0 ? sum / channels : 0.0;
            dot = dot / channels;
            for (int c = 0; c < channels; ++c) {
                const double share = (static_cast<double>(other[c]) - a) * b * dot;
                out[c] = static_cast<T>((static_cast<double>(in[c]) - sum - share) * b);
            }
            break;
        }
        case LOCAL_RESPONSE:
            for (int c = 0; c < channels; ++c) {
                const double value = in[c];
                out[c] = static_cast<T>(value * power(response(args, in, c, channels), -args.beta));
            }
            break;
        case LOCAL_RESPONSE_BACKWARD:
            for (int c = 0; c < channels; ++c) {
                const int begin = c + 1 - (args.size + 1) / 2, end = c + args.size / 2 + 1;
                double slope = 0.0;
                for (int i = begin < 0 ? 0 : begin; i < (end < channels ? end : channels); ++i) {
                    const double scale = response(args, other, i, channels);
                    slope += static_cast<double>(in[i]) * static_cast<double>(other[i]) * power(scale, -args.beta - 1.0);
                }
                const double own = static_cast<double>(in[c]) * power(response(args, other, c, channels), -args.beta);
                const double factor = 2.0 * args.beta * args.share;
                out[c] = static_cast<T>(own - factor * static_cast<double>(other[c]) * slope);
            }
            break;
        case ARG_MAX: out[0] = static_cast<T>(largest_channel(in, channels)); break;
        case MAX_CHANNELS: {
            // a zero is positive, and NaN is one and the same
            const T largest = in[largest_channel(in, channels)];
            out[0] = is_nan(largest) ? static_cast<T>(no_number) : largest + T(0);
            break;
        }
        case MAX_CHANNELS_BACKWARD: {
            const int largest = largest_channel(other, args.in[1].channels);
            for (int c = 0; c < args.in[1].channels; ++c) out[c] = c == largest ? in[0] : T(0);
            break;
        }
        case SUM_CHANNELS: {
            T sum = in[0];
            for (int c = 1; c < channels; ++c) sum += in[c];
            out[0] = sum;
            break;
        }
        default: {
            softmax_of(in, channels, largest, b);
            b = 1.0 / b;
            const bool has_classes = args.in[1].channels == 1;
            const int named = has_classes ? class_of(other[0], channels) : 0;
            for (int c = 0; c < channels; ++c) {
                double expected = has_classes ? (named == c ? 1.0 : 0.0) : static_cast<double>(other[has_classes ? 0 : c]);
                if (has_classes && named == -2) expected = no_number;
                const double slope = multiply_add(power_below(in[c], largest), b, -expected) * args.eps;
                out[c] = has_classes && named == -1 ? T(0) : static_cast<T>(slope);
            }
        }
    }
}

template <typename T>
DEVICE void pixels(const PixelArgs& args) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= args.part.cols) return;
    for (int n = blockIdx.z; n < args.part.images; n += gridDim.z) {
        for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < args.part.rows; row += gridDim.y * blockDim.y) {
            of_pixel<T>(args, n, args.part.row0 + row, args.part.col0 + col);
        }
    }
}

KERNEL(pixel_f32, PixelArgs, 256) { pixels<float>(args); }
KERNEL(pixel_f64, PixelArgs, 256) { pixels<double>(args); }
