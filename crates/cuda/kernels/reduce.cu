// Sums without rounding, and maxima with their places.
//
// A sum is an array of 64-bit integers 32 bits apart, whose unit is 2^-2148 as in `ExactSum`: word i counts units of 2^(32·i). Each
// term adds less than 2^32 to a word, with a sign, so a word holds 2^31 terms before it must pass its carry on.
//
// Threads add up what they can before. Of singles, whole numbers of a unit that is a bound on them, far smaller: nearly all terms are, and
// integers have no rounding. Of doubles, two numbers whose exact sum is that of the terms. What these cannot hold they add at once.
#include "pixel.cuh"

constexpr int WORDS = 136;       // of a sum: digits, then what is no finite number
constexpr int DIGITS = 132;
constexpr int SPECIALS = 135;
constexpr u64 POSITIVE = 1, NEGATIVE = 2;
constexpr int MOST_LANES = 8;
constexpr int THREADS = 256;
constexpr int SECOND = MOST_LANES * (WORDS + 1);  // from a sum of a block of threads to the second beside it

enum SumOf { ELEMENTS, PRODUCTS, SQUARED_ERRORS };
enum SlotOf { ALL, CHANNEL, IMAGE };

struct ReduceArgs {
    View in[2];
    Part share;
    const void* mean;
    u64* sums;
    int sum_of;   // of what, where one kernel knows several
    int slot_of;  // what has a sum of its own
    int slots;    // the sums before the second of each
    int unused;
};

// A word of a block of threads, in halves: a GPU adds these to shared memory by one instruction, and 64 bits by a loop.
struct Word {
    unsigned low, high;
    DEVICE void add(u64 value) {
        const unsigned own = static_cast<unsigned>(value), before = atomicAdd(&low, own);
        const unsigned above = static_cast<unsigned>(value >> 32) + (before + own < own ? 1u : 0u);
        if (above != 0) atomicAdd(&high, above);
    }
};

DEVICE void add_digits(Word* words, int at, u64 low, u64 high, bool is_negative) {
    // `low` and `high` are 64-bit halves of a number below 2^106
    const int shift = at % 32;
    words += at / 32;
    const u64 digits[5] = {(low << shift) & 0xffffffffull, ((low >> (32 - shift))) & 0xffffffffull,
                           ((shift == 0 ? 0 : low >> (64 - shift)) | (high << shift)) & 0xffffffffull,
                           (high >> (32 - shift)) & 0xffffffffull, shift == 0 ? 0 : high >> (64 - shift)};
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        if (digits[i] != 0) words[i].add(is_negative ? 0ull - digits[i] : digits[i]);
    }
}

DEVICE void add_special(Word* words, double value) {
    const u64 kinds = is_nan(value) ? POSITIVE | NEGATIVE : value > 0.0 ? POSITIVE : NEGATIVE;
    atomicOr(&words[SPECIALS].low, static_cast<unsigned>(kinds));
}

// The mantissa m and exponent e with |value| = m·2^(e − 1074).
DEVICE u64 decode(double value, int& exponent) {
    const u64 bits = static_cast<u64>(__double_as_longlong(value));
    const int field = static_cast<int>(bits >> 52 & 0x7ff);
    exponent = field == 0 ? 0 : field - 1;
    return (bits & 0x000fffffffffffffull) | (field == 0 ? 0 : 1ull << 52);
}

DEVICE bool is_finite(double value) { return absolute(value) < __longlong_as_double(0x7ff0000000000000ll); }

OUTLINED void deposit(Word* words, double value) {
    if (!is_finite(value)) {
        add_special(words, value);
        return;
    }
    int exponent;
    const u64 mantissa = decode(value, exponent);
    add_digits(words, exponent + 1074, mantissa, 0, is_negative(value));
}

OUTLINED void deposit_product(Word* words, double a, double b) {
    if (!is_finite(a) || !is_finite(b)) {
        add_special(words, a * b);
        return;
    }
    int first, second;
    const u64 x = decode(a, first), y = decode(b, second);
    add_digits(words, first + second, x * y, __umul64hi(x, y), is_negative(a) != is_negative(b));
}

// So many units of 2^exponent, in two's complement.
OUTLINED void deposit_units(Word* words, u64 units, int exponent) {
    const bool is_below = units >> 63 != 0;
    if (units != 0) add_digits(words, exponent + 2148, is_below ? 0ull - units : units, 0, is_below);
}

// Two numbers whose exact sum is that of the terms so far, but for those that were added to the words.
struct Running {
    double high = 0.0, low = 0.0;

    DEVICE void add(Word* words, double value) {
        // far from where a sum would overflow
        if (!(absolute(value) < 0x1p900)) {
            deposit(words, value);
            return;
        }
        double rest = two_sum(high, value);
        rest = two_sum(low, rest);
        if (rest != 0.0) deposit(words, rest);
    }

    DEVICE void add_square(Word* words, double value) {
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

    DEVICE void finish(Word* words) {
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

// The sum of terms, and that of their squares in the second words.
template <typename T, bool SQUARES>
struct Sum;

template <bool SQUARES>
struct Sum<double, SQUARES> {
    Running sum, squares;

    template <int N, typename F>
    DEVICE void add(Word* words, const double (&terms)[N], F) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            sum.add(words, terms[i]);
            if (SQUARES) squares.add_square(words + SECOND, terms[i]);
        }
    }

    DEVICE void finish(Word* words) {
        sum.finish(words);
        if (SQUARES) squares.finish(words + SECOND);
    }
};

// A term below 2^top is a sum of whole numbers of at most 2^22 times 2^(top − 22), 2^(top − 45) and 2^(top − 68), or no multiple of the
// last of these units. Where squares are wanted there are two numbers, so that products are few.
template <bool SQUARES>
struct Sum<float, SQUARES> {
    static constexpr int PARTS = SQUARES ? 2 : 3, LAST = 23 * PARTS - 1;
    // then no unit is below the least number, and no sum overflows
    static constexpr int LEAST = LAST - 149, MOST = 126;
    // of numbers of at most 2^45 units, or products of 2^44
    static constexpr int MOST_TERMS = 1 << 17;
    // of the first two numbers, in units of the second, and of the third; of the first squared, both multiplied, the second squared; all
    // in two's complement
    u64 units = 0, thirds = 0, high = 0, mixed = 0, low = 0;
    int top = LEAST, added = 0;

    // Whether a term is of these; then the numbers are right.
    DEVICE bool split(float term, int (&numbers)[PARTS]) const {
        // an addition rounds to whole numbers in the last bits of its result: 3·2^top has 2^(top − 22) there
        float unit = 3.0f * power_of_two(top), left = term;
#pragma unroll
        for (int i = 0; i < PARTS; ++i) {
            const float moved = left + unit;
            numbers[i] = static_cast<int>(__float_as_uint(moved) - __float_as_uint(unit));
            left -= moved - unit;
            unit *= 0x1p-23f;
        }
        // not where the term is no number
        return left == 0.0f;
    }

    // Takes so many times the square of what two numbers stand for into the sums.
    DEVICE void add_square(const int (&numbers)[PARTS], u64 times) {
        if (!SQUARES) return;
        const i64 h = numbers[0], l = numbers[1];
        high += static_cast<u64>(h * h) * times;
        mixed += static_cast<u64>(h * l) * times;
        low += static_cast<u64>(l * l) * times;
    }

    // `again` gives a term once more.
    template <int N, typename F>
    DEVICE void add(Word* words, const float (&terms)[N], F again) {
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) most = fmaxf(most, fabsf(terms[i]));
        if (most >= power_of_two(top) || added >= MOST_TERMS) {
            finish(words);
            // with room for larger ones
            const int wanted = static_cast<int>(__float_as_uint(most) >> 23) - 126 + 2;
            top = wanted < top ? top : wanted > MOST ? MOST : wanted;
        }
        added += N;
        unsigned sums[PARTS] = {}, others = most < power_of_two(top) ? 0 : (1u << N) - 1;
        int numbers[PARTS];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (!split(terms[i], numbers)) others |= 1u << i;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) sums[part] += static_cast<unsigned>(numbers[part]);
            add_square(numbers, 1);
        }
        // what was added of other terms is taken back
#pragma unroll 1
        for (int i = 0; others != 0; ++i, others >>= 1) {
            if ((others & 1) == 0) continue;
            const float other = again(i);
            split(other, numbers);
            for (int part = 0; part < PARTS; ++part) sums[part] -= static_cast<unsigned>(numbers[part]);
            add_square(numbers, ~0ull);
            const double term = other;
            deposit(words, term);
            // the square of a single is exact in double
            if (SQUARES) deposit(words + SECOND, term * term);
        }
        const auto whole = [&](int part) { return static_cast<i64>(static_cast<int>(sums[part])); };
        units += static_cast<u64>(whole(0) * (1 << 23) + whole(1));
        if (PARTS > 2) thirds += static_cast<u64>(whole(PARTS - 1));
    }

    DEVICE void finish(Word* words) {
        if (added == 0) return;
        deposit_units(words, units, top - 45);
        if (PARTS > 2) deposit_units(words, thirds, top - 68);
        if (SQUARES) {
            deposit_units(words + SECOND, high, 2 * top - 44);
            deposit_units(words + SECOND, mixed, 2 * top - 66);
            deposit_units(words + SECOND, low, 2 * top - 90);
        }
        units = thirds = high = mixed = low = 0;
        added = 0;
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
    T largest_score;
    double sum;
    softmax_of(scores, channels, largest_score, sum);
    const double largest = static_cast<double>(largest_score), logarithm_of_sum = logarithm(sum / SCALE_OF_POWERS<T>);
    if (has_classes) {
        loss = named < 0 ? __longlong_as_double(0x7ff8000000000000ll)
                         : (largest - static_cast<double>(scores[named])) + logarithm_of_sum;
        return true;
    }
    loss = sum_of_channels(channels, [&](int c, double sum) {
        return sum + static_cast<double>(target[c]) * ((largest - static_cast<double>(scores[c])) + logarithm_of_sum);
    });
    return true;
}

struct ReduceShared {
    Word words[2][MOST_LANES][WORDS + 1];  // so that lanes lie in different banks
};

// What a thread adds up: of every `step`-th row from `row` on, those of all images counted on, every `apart`-th pixel from `col` on.
struct Share {
    int image, channel, row, end, step, col, apart;
    Word* words;
};

// `terms` makes those of the first and of the second sum of an element and that of the other input; or the second is that of squares.
template <typename T, bool HAS_SECOND, bool SQUARES, typename F>
struct Elements {
    const Share& share;
    F terms;
    Sum<T, SQUARES> first;
    Sum<T, false> second;

    // Adds the elements of a row that are left, N at a time from loads that are under way together.
    template <int N>
    DEVICE void add(const T* from, i64 step, const T* beside, i64 beside_step, int left) {
        for (; left > 0; left -= N) {
            const auto terms_of = [&](int i) {
                return i < left ? terms(from[i * step], beside[i * beside_step]) : Vec<T, 2>{};
            };
            T firsts[N], seconds[N];
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const Vec<T, 2> both = terms_of(i);
                firsts[i] = both.at[0], seconds[i] = both.at[1];
            }
            first.add(share.words, firsts, [&](int i) { return terms_of(i).at[0]; });
            if (HAS_SECOND) second.add(share.words + SECOND, seconds, [&](int i) { return terms_of(i).at[1]; });
            from += N * step, beside += N * beside_step;
        }
    }
};

template <typename T, bool HAS_SECOND, bool SQUARES, typename F>
DEVICE void add_elements(const ReduceArgs& args, const Share& share, F terms) {
    Elements<T, HAS_SECOND, SQUARES, F> elements = {share, terms, {}, {}};
    const i64 step = of_pixels(share.apart, args.in[0].shift), beside_step = of_pixels(share.apart, args.in[1].shift);
    const int count = (args.share.cols - share.col + share.apart - 1) / share.apart;
    for (int row = share.row; row < share.end; row += share.step) {
        const int n = row / args.share.rows;
        const i64 y = args.share.row0 + row % args.share.rows, x = args.share.col0 + share.col;
        const T* from = &element<T>(args.in[0], n, share.channel, y, x);
        const T* beside = &element<T>(args.in[1], n, share.channel, y, x);
        if (step == THREADS && beside_step == THREADS) {
            // addresses differ by numbers in the instructions
            elements.template add<(sizeof(T) > 4 ? 4 : HAS_SECOND ? 8 : 16)>(from, THREADS, beside, THREADS, count);
        } else {
            elements.template add<4>(from, step, beside, beside_step, count);
        }
    }
    elements.first.finish(share.words);
    elements.second.finish(share.words + SECOND);
}

template <typename T>
DEVICE void add_losses(const ReduceArgs& args, const Share& share) {
    Running losses, counted;
    for (int row = share.row; row < share.end; row += share.step) {
        const int n = row / args.share.rows;
        const i64 y = args.share.row0 + row % args.share.rows;
        for (int col = share.col; col < args.share.cols; col += share.apart) {
            double loss;
            if (!loss_of<T>(args, n, y, args.share.col0 + col, loss)) continue;
            losses.add(share.words, loss);
            counted.add(share.words + SECOND, 1.0);
        }
    }
    losses.finish(share.words);
    counted.finish(share.words + SECOND);
}

// A block of threads takes rows of one image where each has a sum of its own, else of all; of one channel block, or of all channels at
// once. `add` is called with a thread's share.
template <typename F>
DEVICE void reduce(const ReduceArgs& args, bool is_of_pixels, F add) {
    SHARED(ReduceShared, shared);
    const int thread = threadIdx.x;
    Word* all = &shared.words[0][0][0];
    for (int at = thread; at < 2 * MOST_LANES * (WORDS + 1); at += THREADS) all[at] = {0, 0};
    __syncthreads();

    const View& in = args.in[0];
    const bool is_of_image = args.slot_of == IMAGE;
    const int lanes = is_of_pixels ? 1 : 1 << in.shift, channels = is_of_pixels ? 1 : in.channels;
    const int blocks = (channels + lanes - 1) / lanes;
    const int n = is_of_image ? blockIdx.x / blocks : 0, first_channel = blockIdx.x % blocks * lanes;
    // narrow rows are shared out among few threads, so that each has some terms at a time
    int apart = THREADS / lanes;
    while (apart > 1 && apart * 2 >= args.share.cols) apart /= 2;
    const int lane = thread % lanes, beside = thread / lanes, side_by_side = THREADS / lanes / apart;
    const int images = is_of_image ? 1 : args.share.images;
    Share share;
    share.image = n;
    share.channel = first_channel + lane;
    share.row = n * args.share.rows + static_cast<int>(blockIdx.y) * side_by_side + beside / apart;
    share.end = (n + images) * args.share.rows;
    share.step = static_cast<int>(gridDim.y) * side_by_side;
    share.col = beside % apart;
    share.apart = apart;
    share.words = shared.words[0][lane];
    if (share.channel < channels) add(share);
    __syncthreads();
    for (int at = thread; at < 2 * lanes * WORDS; at += THREADS) {
        const int sum = at / (lanes * WORDS), of = at / WORDS % lanes, word = at % WORDS, channel = first_channel + of;
        const Word own = shared.words[sum][of][word];
        const u64 value = static_cast<u64>(own.high) << 32 | own.low;
        if (value == 0) continue;
        const int slot = args.slot_of == ALL ? 0 : args.slot_of == CHANNEL ? channel : n * channels + channel;
        u64* to = args.sums + static_cast<i64>(slot + sum * args.slots) * WORDS + word;
        if (word == SPECIALS) {
            atomicOr(to, value);
        } else {
            atomicAdd(to, value);
        }
    }
}

template <typename T>
DEVICE void sums(const ReduceArgs& args) {
    reduce(args, false, [&](const Share& share) {
        const auto add = [&](auto term) {
            add_elements<T, false, false>(args, share, [=](T x, T y) { return Vec<T, 2>{term(x, y), T(0)}; });
        };
        switch (args.sum_of) {
            case ELEMENTS: return add([](T x, T) { return x; });
            case PRODUCTS: return add([](T x, T y) { return x * y; });
            default: return add([](T x, T y) { return (x - y) * (x - y); });
        }
    });
}

template <typename T>
DEVICE void moments(const ReduceArgs& args) {
    reduce(args, false, [&](const Share& share) {
        add_elements<T, false, true>(args, share, [](T x, T) { return Vec<T, 2>{x, T(0)}; });
    });
}

// Of the first input, and its dot product with the other less a mean.
template <typename T>
DEVICE void centred(const ReduceArgs& args) {
    reduce(args, false, [&](const Share& share) {
        const int of_image = args.slot_of == IMAGE ? share.image * args.in[0].channels : 0;
        const T mean = static_cast<const T*>(args.mean)[of_image + share.channel];
        add_elements<T, true, false>(args, share, [=](T x, T y) { return Vec<T, 2>{x, x * (y - mean)}; });
    });
}

template <typename T>
DEVICE void losses(const ReduceArgs& args) {
    reduce(args, true, [&](const Share& share) { add_losses<T>(args, share); });
}

KERNEL(sums_f32, ReduceArgs, 256, 3) { sums<float>(args); }
KERNEL(sums_f64, ReduceArgs, 256) { sums<double>(args); }
KERNEL(moments_f32, ReduceArgs, 256, 4) { moments<float>(args); }
KERNEL(moments_f64, ReduceArgs, 256) { moments<double>(args); }
KERNEL(centred_f32, ReduceArgs, 256, 3) { centred<float>(args); }
KERNEL(centred_f64, ReduceArgs, 256) { centred<double>(args); }
KERNEL(losses_f32, ReduceArgs, 256, 4) { losses<float>(args); }
KERNEL(losses_f64, ReduceArgs, 256) { losses<double>(args); }

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
