// Gradients of weights: the pixels of a share are cut into a number of parts that the convolution's geometry fixes, each part is summed
// in the order of its pixels into scratch memory, and the parts are added in order.
#pragma once

#include "device.cuh"
#include "ptx.cuh"

struct WeightAxis {
    i64 input;
    int kernel, stride, dilation, padding;
};

struct WeightArgs {
    View x, gy;
    Part share;
    WeightAxis axes[2];
    int groups, inputs, outputs;  // channels of a group
    int splits;
    void* scratch;  // [split][output][tap][input]
};

// A pixel of a share by its number, and those that follow it.
struct Cursor {
    int n, row, col;
    DEVICE Cursor(const Part& share, i64 number) {
        const i64 plane = static_cast<i64>(share.rows) * share.cols;
        n = static_cast<int>(number / plane);
        const i64 rest = number - n * plane;
        row = static_cast<int>(rest / share.cols);
        col = static_cast<int>(rest - static_cast<i64>(row) * share.cols);
    }
    DEVICE void advance(const Part& share, int by) {
        col += by;
        while (col >= share.cols) {
            col -= share.cols;
            if (++row == share.rows) {
                row = 0;
                ++n;
            }
        }
    }
};

// Pixels of a step.
constexpr int STEP = 8;

DEVICE void bounds(const WeightArgs& args, int split, i64& begin, i64& end) {
    const i64 pixels = static_cast<i64>(args.share.images) * args.share.rows * args.share.cols;
    begin = pixels * split / args.splits;
    end = pixels * (split + 1) / args.splits;
}

template <typename T, typename Sums>
struct WeightShared {
    alignas(16) T gy[Sums::STAGES][STEP][Sums::OUTPUTS + Sums::SPARE], x[Sums::STAGES][STEP][Sums::TERMS + Sums::SPARE];
};

// The sums of a tile by multiply-adds: of each output channel and term one chain of them over the pixels of a part.
template <typename T, int TILE_OUTPUTS, int TILE_TERMS, int OWN_OUTPUTS, int OWN_TERMS>
struct Chains {
    static constexpr int OUTPUTS = TILE_OUTPUTS, TERMS = TILE_TERMS, STAGES = 3, SPARE = LANES;
    static constexpr int ALONG = TERMS / OWN_TERMS, THREADS = OUTPUTS / OWN_OUTPUTS * ALONG;
    static constexpr int OUTPUTS_APART = OUTPUTS / OWN_OUTPUTS * LANES, TERMS_APART = ALONG * LANES;
    // a warp has eight groups of terms by four of outputs, or more of terms where there are fewer of outputs
    static constexpr int ACROSS = OUTPUTS / OWN_OUTPUTS, MOST_ALONG = ACROSS < 4 ? 32 / ACROSS : 8;
    static constexpr int WARP_ALONG = ALONG < MOST_ALONG ? ALONG : MOST_ALONG;
    static_assert(ALONG % WARP_ALONG == 0 && ACROSS % (32 / WARP_ALONG) == 0 && ACROSS > 1, "warps cover the tile");
    int own_term, own_output;
    T sums[OWN_OUTPUTS][OWN_TERMS];

    DEVICE void begin(int thread) {
        // neighbours share their terms, and those two apart their outputs, so that loads from shared memory are merged
        const int lane = thread % 32, warp = thread / 32;
        own_term = lane / 2 % WARP_ALONG + warp % (ALONG / WARP_ALONG) * WARP_ALONG;
        own_output = lane % 2 + lane / (2 * WARP_ALONG) * 2 + warp / (ALONG / WARP_ALONG) * (32 / WARP_ALONG);
#pragma unroll
        for (int i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
            for (int j = 0; j < OWN_TERMS; ++j) sums[i][j] = T(0);
        }
    }

    DEVICE void add(const WeightShared<T, Chains>& shared, int stage) {
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            Vec<T, LANES> gy[OWN_OUTPUTS / LANES], x[OWN_TERMS / LANES];
#pragma unroll
            for (int i = 0; i < OWN_OUTPUTS / LANES; ++i) {
                gy[i] = lanes_at(&shared.gy[stage][k][own_output * LANES + i * OUTPUTS_APART]);
            }
#pragma unroll
            for (int j = 0; j < OWN_TERMS / LANES; ++j) {
                x[j] = lanes_at(&shared.x[stage][k][own_term * LANES + j * TERMS_APART]);
            }
#pragma unroll
            for (int i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
                for (int j = 0; j < OWN_TERMS; ++j) {
                    sums[i][j] = multiply_add(gy[i / LANES].at[i % LANES], x[j / LANES].at[j % LANES], sums[i][j]);
                }
            }
        }
    }

    // Hands each sum over, with its output channel, to what `write` gives for its term.
    template <typename Write>
    DEVICE void write(Write write) {
#pragma unroll
        for (int j = 0; j < OWN_TERMS; ++j) {
            const auto of_term = write(own_term * LANES + j / LANES * TERMS_APART + j % LANES);
#pragma unroll
            for (int i = 0; i < OWN_OUTPUTS; ++i) {
                of_term(own_output * LANES + i / LANES * OUTPUTS_APART + i % LANES, sums[i][j]);
            }
        }
    }
};

// A tile of output channels by terms, which are taps and input channels in one row: [tap][input]. Of each side so many lanes are copied
// at a time: channels in whole blocks, or one by one where they are few, or groups cut blocks.
template <typename T, int GY_UNIT, int X_UNIT, typename Sums>
DEVICE void weights(const WeightArgs& args) {
    typedef WeightShared<T, Sums> Shared;
    constexpr int OUTPUTS = Sums::OUTPUTS, TERMS = Sums::TERMS, THREADS = Sums::THREADS, STAGES = Sums::STAGES;
    constexpr int BLOCK = X_UNIT == 1 ? 1 : 8;  // channels of x that lie together
    constexpr int GY_UNITS = GY_UNIT == 1 ? 1 : 8 / GY_UNIT, X_UNITS = BLOCK / X_UNIT;  // the copies of a block
    constexpr int GY_COPIES = STEP * OUTPUTS / GY_UNIT / THREADS, X_COPIES = STEP * TERMS / X_UNIT / THREADS;
    constexpr int APART = THREADS / STEP;  // from one copy of a thread to its next one
    static_assert(STEP * OUTPUTS / GY_UNIT % THREADS == 0 && STEP * TERMS / X_UNIT % THREADS == 0, "copies are shared evenly");
    static_assert(THREADS % (STEP * GY_UNITS) == 0 && THREADS % (STEP * X_UNITS) == 0,
                  "a thread copies the same lanes of one pixel of each step");
    SHARED(Shared, shared);
    const int thread = threadIdx.x;
    const int taps = args.axes[0].kernel * args.axes[1].kernel;
    // the channels of a tap among the terms
    const int padded = (args.inputs + BLOCK - 1) / BLOCK * BLOCK;
    const int term_tiles = (taps * padded + TERMS - 1) / TERMS, output_tiles = (args.outputs + OUTPUTS - 1) / OUTPUTS;
    const int group = blockIdx.x / (term_tiles * output_tiles), tile = blockIdx.x % (term_tiles * output_tiles);
    const int first_output = tile / term_tiles * OUTPUTS, first_term = tile % term_tiles * TERMS;
    i64 begin, end;
    bounds(args, blockIdx.z, begin, end);

    // of each side this thread copies some lanes of one pixel of each step: those and the ones so many further on
    const int gy_own = thread / GY_UNITS % STEP, gy_lanes = thread % GY_UNITS + thread / (GY_UNITS * STEP) * GY_UNITS;
    const int x_own = thread / X_UNITS % STEP, x_lanes = thread % X_UNITS + thread / (X_UNITS * STEP) * X_UNITS;
    // (lanes past the last channel are copied as they are: the sums that they reach are nobody's)
    bool gy_valid[GY_COPIES], x_valid[X_COPIES];
    int x_channel[X_COPIES], x_tap[X_COPIES];
#pragma unroll
    for (int i = 0; i < GY_COPIES; ++i) gy_valid[i] = first_output + (gy_lanes + i * APART) * GY_UNIT < args.outputs;
#pragma unroll
    for (int i = 0; i < X_COPIES; ++i) {
        const int term = first_term + (x_lanes + i * APART) * X_UNIT;
        x_tap[i] = term / padded;
        x_channel[i] = term - x_tap[i] * padded;
        x_valid[i] = x_tap[i] < taps && x_channel[i] < args.inputs;
    }

    // the row that is copied: what it has left, as pixels of this thread and as steps, and where its next pixel lies
    Cursor cursor(args.share, begin);
    i64 left = end - begin;
    int gy_left = 0, x_left = 0, steps_left = 0;
    const T *gy_from[GY_COPIES], *x_from[X_COPIES];
    int x_col[X_COPIES];
    unsigned x_cols[X_COPIES];  // the columns that count, none where the row lies outside
    const i64 gy_step = static_cast<i64>(STEP) << args.gy.shift;
    const int x_step = STEP * args.axes[1].stride;
    const i64 x_from_step = static_cast<i64>(x_step) << args.x.shift;
    auto locate = [&]() {
        const int in_row = args.share.cols - cursor.col;
        const int pixels = left < in_row ? static_cast<int>(left) : in_row;
        steps_left = left > 0 ? (pixels + STEP - 1) / STEP : 1 << 30;
        gy_left = pixels - gy_own;
        x_left = pixels - x_own;
        left -= pixels;
        const i64 y = args.share.row0 + cursor.row, gy_x = args.share.col0 + cursor.col + gy_own, x = args.share.col0 + cursor.col + x_own;
        const int mask = (1 << args.x.shift) - 1, gy_mask = (1 << args.gy.shift) - 1;
#pragma unroll
        for (int i = 0; i < GY_COPIES; ++i) {
            const int c = group * args.outputs + (gy_valid[i] ? first_output + (gy_lanes + i * APART) * GY_UNIT : 0);
            gy_from[i] = pixel<T>(args.gy, cursor.n, c >> args.gy.shift, y, gy_x) + (c & gy_mask);
        }
#pragma unroll
        for (int i = 0; i < X_COPIES; ++i) {
            const int u = x_tap[i] / args.axes[1].kernel, v = x_tap[i] - u * args.axes[1].kernel;
            const i64 from_y = y * args.axes[0].stride + u * args.axes[0].dilation - args.axes[0].padding;
            const i64 from_x = x * args.axes[1].stride + v * args.axes[1].dilation - args.axes[1].padding;
            const bool is_inside = x_valid[i] && from_y >= 0 && from_y < args.axes[0].input;
            const int c = group * args.inputs + x_channel[i];
            x_col[i] = static_cast<int>(from_x);
            x_cols[i] = is_inside ? static_cast<unsigned>(args.axes[1].input) : 0;
            x_from[i] = is_inside ? pixel<T>(args.x, cursor.n, c >> args.x.shift, from_y, from_x) + (c & mask)
                                  : static_cast<const T*>(args.x.data);
        }
        cursor.col = 0;
        if (++cursor.row == args.share.rows) {
            cursor.row = 0;
            ++cursor.n;
        }
    };
    auto copy = [&](int stage) {
#pragma unroll
        for (int i = 0; i < GY_COPIES; ++i) {
            copy_lanes<GY_UNIT>(&shared.gy[stage][gy_own][(gy_lanes + i * APART) * GY_UNIT], gy_from[i], gy_left > 0 && gy_valid[i]);
            gy_from[i] += gy_step;
        }
#pragma unroll
        for (int i = 0; i < X_COPIES; ++i) {
            const bool is_inside = x_left > 0 && static_cast<unsigned>(x_col[i]) < x_cols[i];
            copy_lanes<X_UNIT>(&shared.x[stage][x_own][(x_lanes + i * APART) * X_UNIT], x_from[i], is_inside);
            x_from[i] += x_from_step;
            x_col[i] += x_step;
        }
        gy_left -= STEP;
        x_left -= STEP;
    };
    // after so many copies
    auto advance = [&](int copies) {
        steps_left -= copies;
        if (steps_left <= 0) locate();
    };

    const int head = args.share.cols - cursor.col < left ? args.share.cols - cursor.col : static_cast<int>(left);
    const i64 tail = left - head, in_row = (args.share.cols + STEP - 1) / STEP;
    const i64 steps = (head + STEP - 1) / STEP + tail / args.share.cols * in_row + (tail % args.share.cols + STEP - 1) / STEP;
    locate();
    Sums sums;
    sums.begin(thread);
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) copy(stage);
        copy_async_commit();
        advance(1);
    }
    int stage = 0;
    i64 copies = steps - (STAGES - 1);  // to come
    // the steps whose copies are of one row are a loop of their own, in which no place is looked for
    for (i64 step = 0, next_row; step < steps; step = next_row) {
        next_row = step + steps_left < steps ? step + steps_left : steps;
        const int count = static_cast<int>(next_row - step);
        int copied = copies < 0 ? 0 : copies < count ? static_cast<int>(copies) : count;
        copies -= count;
        for (int rest = count; rest > 0; --rest) {
            copy_async_wait<STAGES - 2>();
            __syncthreads();
            const int next = stage == 0 ? STAGES - 1 : stage - 1;
            if (copied-- > 0) copy(next);
            copy_async_commit();
            sums.add(shared, stage);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        advance(count);
    }
    copy_async_wait<0>();

    T* scratch = static_cast<T*>(args.scratch) +
                 (static_cast<i64>(blockIdx.z) * args.groups + group) * args.outputs * args.inputs * taps;
    sums.write([&](int own_term) {
        const int term = first_term + own_term;
        const int tap = term / padded, c = term - tap * padded;
        const bool is_real = tap < taps && c < args.inputs;
        return [=, &args](int own_output, T sum) {
            const int o = first_output + own_output;
            if (is_real && o < args.outputs) scratch[(static_cast<i64>(o) * taps + tap) * args.inputs + c] = sum;
        };
    });
}
