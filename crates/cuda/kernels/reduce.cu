// Sums without rounding, and maxima with their places.
//
// A sum is an array of 64-bit integers 32 bits apart, whose unit is 2^-2148 as in `ExactSum`: word i counts units of 2^(32·i). Each
// term adds less than 2^32 to a word, with a sign, so a word holds 2^31 terms before it must pass its carry on. Threads keep two
// numbers whose exact sum is that of their terms, and add what these cannot hold at once.
#include "pixel.cuh"

constexpr int WORDS = 136;       // of a sum: digits, then what is no finite number
constexpr int DIGITS = 132;
constexpr int SPECIALS = 135;
constexpr u64 POSITIVE = 1, NEGATIVE = 2;
constexpr int MOST_LANES = 8;
constexpr int THREADS = 256;

enum ReduceOp { CHANNEL_SUM, MOMENTS, CENTRED_DOT, DOT, SQUARED_ERROR, CROSS_ENTROPY };
enum SlotOf { ALL, CHANNEL, IMAGE };

struct ReduceArgs {
    View in[2];
    Part share;
    const void* mean;
    u64* sums;
    int op;
    int slot_of;  // what has a sum of its own
    int slots;    // the sums before the second of each
    int unused;
};

DEVICE void add_digits(u64* words, int at, u64 low, u64 high, int shift, bool is_negative) {
    // `low` and `high` are 64-bit halves of a number below 2^106, moved up by `shift` below 32 bits
    const u64 digits[5] = {(low << shift) & 0xffffffffull, ((low >> (32 - shift))) & 0xffffffffull,
                           ((shift == 0 ? 0 : low >> (64 - shift)) | (high << shift)) & 0xffffffffull,
                           (high >> (32 - shift)) & 0xffffffffull, shift == 0 ? 0 : high >> (64 - shift)};
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        if (digits[i] != 0) atomicAdd(words + at + i, is_negative ? 0ull - digits[i] : digits[i]);
    }
}

DEVICE void add_special(u64* words, double value) {
    atomicOr(words + SPECIALS, is_nan(value) ? POSITIVE | NEGATIVE : value > 0.0 ? POSITIVE : NEGATIVE);
}

// The mantissa m and exponent e with |value| = m·2^(e − 1074).
DEVICE u64 decode(double value, int& exponent) {
    const u64 bits = static_cast<u64>(__double_as_longlong(value));
    const int field = static_cast<int>(bits >> 52 & 0x7ff);
    exponent = field == 0 ? 0 : field - 1;
    return (bits & 0x000fffffffffffffull) | (field == 0 ? 0 : 1ull << 52);
}

DEVICE bool is_finite(double value) { return absolute(value) < __longlong_as_double(0x7ff0000000000000ll); }

OUTLINED void deposit(u64* words, double value) {
    if (!is_finite(value)) {
        add_special(words, value);
        return;
    }
    int exponent;
    const u64 mantissa = decode(value, exponent);
    const int at = exponent + 1074;
    add_digits(words, at / 32, mantissa, 0, at % 32, is_negative(value));
}

OUTLINED void deposit_product(u64* words, double a, double b) {
    if (!is_finite(a) || !is_finite(b)) {
        add_special(words, a * b);
        return;
    }
    int first, second;
    const u64 x = decode(a, first), y = decode(b, second);
    const int at = first + second;
    add_digits(words, at / 32, x * y, __umul64hi(x, y), at % 32, is_negative(a) != is_negative(b));
}

// Two numbers whose exact sum is that of the terms so far, but for those that were added to the words.
struct Running {
    double high = 0.0, low = 0.0;

    DEVICE void add(u64* words, double value) {
        // far from where a sum would overflow
        if (!(absolute(value) < 0x1p900)) {
            deposit(words, value);
            return;
        }
        double rest = two_sum(high, value);
        rest = two_sum(low, rest);
        if (rest != 0.0) deposit(words, rest);
    }

    DEVICE void add_square(u64* words, double value) {
        const double square = value * value;
        if (value == 0.0) return;
        // then the error of the product is a normal number as well
        if (!(square >= 0x1p-900 && square < 0x1p900)) {
            deposit_product(words, value, value);
            return;
        }
        add(words, square);
        add(words, multiply_add(value, value, -square));
    }

    DEVICE void finish(u64* words) {
        if (high != 0.0) deposit(words, high);
        if (low != 0.0) deposit(words, low);
    }

    // Adds a term to a sum and gives what was rounded off, exactly (Knuth).
    static DEVICE double two_sum(double& sum, double term) {
        const double total = sum + term, part = total - sum;
        const double error = (sum - (total - part)) + (term - part);
        sum = total;
        return error;
    }
};

// The loss of a pixel; false where its target counts for nothing.
template <typename T>
DEVICE bool loss_of(const ReduceArgs& args, int n, i64 y, i64 x, double& loss) {
    const Channels<T> scores(args.in[0], n, y, x), target(args.in[1], n, y, x);
    const int channels = args.in[0].channels;
    const bool has_classes = args.in[1].channels == 1;
    const int named = has_classes ? class_of(target[0], channels) : 0;
    if (has_classes && named == -1) return false;
    double largest, sum;
    softmax_of(scores, channels, largest, sum);
    const double logarithm_of_sum = logarithm(sum);
    if (has_classes) {
        loss = named < 0 ? __longlong_as_double(0x7ff8000000000000ll)
                         : (largest - static_cast<double>(scores[named])) + logarithm_of_sum;
        return true;
    }
    loss = 0.0;
    for (int c = 0; c < channels; ++c) {
        loss += static_cast<double>(target[c]) * ((largest - static_cast<double>(scores[c])) + logarithm_of_sum);
    }
    return true;
}

struct ReduceShared {
    u64 words[2][MOST_LANES][WORDS];
};

template <typename T>
DEVICE void reduce(const ReduceArgs& args) {
    SHARED(ReduceShared, shared);
    const int thread = threadIdx.x;
    u64* all = reinterpret_cast<u64*>(&shared);
    for (int at = thread; at < 2 * MOST_LANES * WORDS; at += THREADS) all[at] = 0;
    __syncthreads();

    const View& in = args.in[0];
    const bool is_loss = args.op == CROSS_ENTROPY;
    const int lanes = is_loss ? 1 : 1 << in.shift, apart = THREADS / lanes;
    const int blocks = is_loss ? 1 : (in.channels + lanes - 1) / lanes;
    const int lane = thread % lanes, own = thread / lanes;
    const int n = blockIdx.x / blocks, c = blockIdx.x % blocks * lanes + lane;
    Running first, second;
    u64 *first_words = shared.words[0][lane], *second_words = shared.words[1][lane];
    if (is_loss || c < in.channels) {
        for (int row = blockIdx.y; row < args.share.rows; row += gridDim.y) {
            for (int col = own; col < args.share.cols; col += apart) {
                const i64 y = args.share.row0 + row, x = args.share.col0 + col;
                if (is_loss) {
                    double loss;
                    if (loss_of<T>(args, n, y, x, loss)) {
                        first.add(first_words, loss);
                        second.add(second_words, 1.0);
                    }
                    continue;
                }
                const T value = element<T>(in, n, c, y, x);
                if (args.op == CHANNEL_SUM || args.op == MOMENTS) {
                    first.add(first_words, value);
                    if (args.op == MOMENTS) {
                        // the square of a single is exact in double
                        if (sizeof(T) == 4) {
                            second.add(second_words, static_cast<double>(value) * static_cast<double>(value));
                        } else {
                            second.add_square(second_words, value);
                        }
                    }
                    continue;
                }
                const T other = element<T>(args.in[1], n, c, y, x);
                if (args.op == CENTRED_DOT) {
                    const T mean =
                        static_cast<const T*>(args.mean)[args.slot_of == IMAGE ? n * in.channels + c : c];
                    first.add(first_words, value);
                    second.add(second_words, value * (other - mean));
                } else if (args.op == DOT) {
                    first.add(first_words, value * other);
                } else {
                    const T difference = value - other;
                    first.add(first_words, difference * difference);
                }
            }
        }
        first.finish(first_words);
        second.finish(second_words);
    }
    __syncthreads();
    const int used = in.channels - (blockIdx.x % blocks) * lanes;
    for (int at = thread; at < 2 * lanes * WORDS; at += THREADS) {
        const int sum = at / (lanes * WORDS), of = at / WORDS % lanes, word = at % WORDS;
        const u64 value = shared.words[sum][of][word];
        if (value == 0 || (!is_loss && of >= used)) continue;
        const int channel = blockIdx.x % blocks * lanes + of;
        const int slot = args.slot_of == ALL ? 0 : args.slot_of == CHANNEL ? channel : n * in.channels + channel;
        u64* to = args.sums + static_cast<i64>(slot + sum * args.slots) * WORDS + word;
        if (word == SPECIALS) {
            atomicOr(to, value);
        } else {
            atomicAdd(to, value);
        }
    }
}

KERNEL(reduce_f32, ReduceArgs, 256) { reduce<float>(args); }
KERNEL(reduce_f64, ReduceArgs, 256) { reduce<double>(args); }

// What `ImageMax` finds of a channel of an image.
struct Extremum {
    double value;
    i64 found, row, col;

    // The result does not depend on the order of candidates.
    DEVICE void offer(double candidate, i64 y, i64 x) {
        bool wins = found == 0;
        if (!wins) {
            const bool earlier = y < row || (y == row && x < col);
            if (is_nan(candidate)) {
                wins = is_nan(value) ? earlier : true;
            } else if (!is_nan(value)) {
                wins = candidate > value || (candidate == value && earlier);
            }
        }
        if (wins) {
            value = candidate;
            found = 1;
            row = y;
            col = x;
        }
    }
};

struct MaxArgs {
    View in;
    Part share;
    Extremum* extrema;
};

struct MaxShared {
    Extremum found[THREADS];
};

// A block of threads for each channel block of an image.
template <typename T>
DEVICE void image_max(const MaxArgs& args) {
    SHARED(MaxShared, shared);
    const int thread = threadIdx.x, lanes = 1 << args.in.shift, apart = THREADS / lanes;
    const int blocks = (args.in.channels + lanes - 1) / lanes;
    const int n = blockIdx.x / blocks, c = blockIdx.x % blocks * lanes + thread % lanes;
    Extremum own = {0.0, 0, 0, 0};
    if (c < args.in.channels) {
        for (int row = 0; row < args.share.rows; ++row) {
            for (int col = thread / lanes; col < args.share.cols; col += apart) {
                const i64 y = args.share.row0 + row, x = args.share.col0 + col;
                own.offer(element<T>(args.in, n, c, y, x), y, x);
            }
        }
    }
    shared.found[thread] = own;
    __syncthreads();
    for (int half = THREADS / 2; half >= lanes; half /= 2) {
        if (thread < half && shared.found[thread + half].found != 0) {
            const Extremum other = shared.found[thread + half];
            shared.found[thread].offer(other.value, other.row, other.col);
        }
        __syncthreads();
    }
    if (thread < lanes && c < args.in.channels && shared.found[thread].found != 0) {
        const Extremum best = shared.found[thread];
        args.extrema[n * args.in.channels + c].offer(best.value, best.row, best.col);
    }
}

KERNEL(image_max_f32, MaxArgs, 256) { image_max<float>(args); }
KERNEL(image_max_f64, MaxArgs, 256) { image_max<double>(args); }

struct MergeArgs {
    void* to;
    const void* from;  // nothing where sums pass on their carries alone
    i64 count;
};

// Adds another lane's sums, and passes the carries on.
KERNEL(merge_sums, MergeArgs, 256) {
    for (i64 slot = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; slot < args.count;
         slot += static_cast<i64>(gridDim.x) * blockDim.x) {
        u64* to = static_cast<u64*>(args.to) + slot * WORDS;
        const u64* from = args.from == nullptr ? nullptr : static_cast<const u64*>(args.from) + slot * WORDS;
        i64 carry = 0;
        for (int word = 0; word < DIGITS; ++word) {
            const i64 own = static_cast<i64>(to[word]), other = from == nullptr ? 0 : static_cast<i64>(from[word]);
            // digits and carries apart, so that nothing overflows; the last word keeps its sign
            const i64 low = (own & 0xffffffffll) + (other & 0xffffffffll) + carry;
            carry = (own >> 32) + (other >> 32) + (low >> 32);
            to[word] = static_cast<u64>(word + 1 < DIGITS ? low & 0xffffffffll : (low & 0xffffffffll) + carry * 4294967296ll);
        }
        if (from != nullptr) to[SPECIALS] |= from[SPECIALS];
    }
}

KERNEL(merge_maxima, MergeArgs, 256) {
    for (i64 slot = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; slot < args.count;
         slot += static_cast<i64>(gridDim.x) * blockDim.x) {
        const Extremum other = static_cast<const Extremum*>(args.from)[slot];
        if (other.found != 0) static_cast<Extremum*>(args.to)[slot].offer(other.value, other.row, other.col);
    }
}
