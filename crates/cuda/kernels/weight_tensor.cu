// Gradients of weights by tensor cores: rows are output channels, columns are terms.
#include "tensor.cuh"
#include "weights.cuh"

// A tile, and the part of it that a warp has.
template <int TILE_OUTPUTS, int TILE_TERMS, int TALL_PIECES, int WIDE_PIECES, bool IS_THRICE, int STEPS_HELD>
struct Tile {
    static constexpr bool THRICE = IS_THRICE;
    static constexpr int OUTPUTS = TILE_OUTPUTS, TERMS = TILE_TERMS, TALL = TALL_PIECES, WIDE = WIDE_PIECES;
    static constexpr int STEP_BLOCKS = BLOCKS<THRICE>, STAGES = STEPS_HELD;
    typedef Warps<OUTPUTS, TERMS, TALL, WIDE> Of;
    static constexpr int THREADS = Of::THREADS;
};

// Lanes of terms: what they read, relative to the pixel of a gradient.
struct Source {
    int row, col;
    int channel;  // of the input, or -1
    int unused;
};

template <typename Tile>
struct TensorShared {
    // eight more so that pixels begin in different banks
    alignas(16) float gy[Tile::STAGES][STEP * Tile::STEP_BLOCKS][Tile::OUTPUTS + 8];
    alignas(16) float x[Tile::STAGES][STEP * Tile::STEP_BLOCKS][Tile::TERMS + 8];
    Source sources[Tile::TERMS / LANES];
};

// As `weights`; a step is so many blocks of pixels of a part, each of one row, whichever rows they are of.
template <typename Tile>
DEVICE void weights_tensor(const WeightArgs& args) {
    constexpr int OUTPUTS = Tile::OUTPUTS, TERMS = Tile::TERMS, TALL = Tile::TALL, WIDE = Tile::WIDE;
    constexpr int THREADS = Tile::THREADS, STAGES = Tile::STAGES, STEP_BLOCKS = Tile::STEP_BLOCKS;
    constexpr int UNITS = 8 / LANES, APART = THREADS / STEP;  // from one copy of a thread to its next one
    constexpr int GY_COPIES = OUTPUTS / LANES / APART, X_COPIES = TERMS / LANES / APART;
    static_assert(OUTPUTS / LANES % APART == 0 && TERMS / LANES % APART == 0, "copies are shared evenly");
    DYNAMIC_SHARED(TensorShared<Tile>, shared);
    const int thread = threadIdx.x;
    const int taps = args.axes[0].kernel * args.axes[1].kernel;
    const int padded = (args.inputs + 7) / 8 * 8;
    const int term_tiles = (taps * padded + TERMS - 1) / TERMS, output_tiles = (args.outputs + OUTPUTS - 1) / OUTPUTS;
    const int group = blockIdx.x / (term_tiles * output_tiles), tile = blockIdx.x % (term_tiles * output_tiles);
    const int first_output = tile / term_tiles * OUTPUTS, first_term = tile % term_tiles * TERMS;
    for (int i = thread; i < TERMS / LANES; i += THREADS) {
        const int term = first_term + i * LANES, tap = term / padded, c = term - tap * padded;
        const int u = tap / args.axes[1].kernel, v = tap - u * args.axes[1].kernel;
        const bool is_real = tap < taps && c < args.inputs;
        shared.sources[i] = {u * args.axes[0].dilation - args.axes[0].padding, v * args.axes[1].dilation - args.axes[1].padding,
                             is_real ? group * args.inputs + c : -1, 0};
    }
    __syncthreads();
    i64 begin, end;
    bounds(args, blockIdx.z, begin, end);

    // this thread copies some lanes of the pixel `own` of each block: `own_lanes` and those so many further on
    const int own = thread / UNITS % STEP, own_lanes = thread % UNITS + thread / (UNITS * STEP) * UNITS;
    // (lanes past the last channel are copied as they are: the sums that they reach are nobody's)
    unsigned gy_valid = 0, x_valid = 0;  // a bit for each copy
#pragma unroll
    for (int i = 0; i < GY_COPIES; ++i) {
        gy_valid |= static_cast<unsigned>(first_output + (own_lanes + i * APART) * LANES < args.outputs) << i;
    }

    // the row that is copied: what it has left, as pixels of this thread and as blocks, and where its next pixel lies
    Cursor cursor(args.share, begin);
    i64 left = end - begin;
    int own_left = 0, blocks_left = 0;
    const float *gy_from[GY_COPIES], *x_from[X_COPIES];
    int x_col[X_COPIES];
    const i64 gy_apart = static_cast<i64>(STEP) << args.gy.shift;
    const int cols_apart = STEP * args.axes[1].stride;
    const i64 x_apart = static_cast<i64>(cols_apart) << args.x.shift;
    const unsigned x_cols = static_cast<unsigned>(args.axes[1].input);
    auto locate = [&]() {
        const int in_row = args.share.cols - cursor.col;
        const int pixels = left < in_row ? static_cast<int>(left) : in_row;
        blocks_left = left > 0 ? (pixels + STEP - 1) / STEP : 1 << 30;
        own_left = pixels - own;
        left -= pixels;
        const i64 y = args.share.row0 + cursor.row, x = args.share.col0 + cursor.col + own;
#pragma unroll
        for (int i = 0; i < GY_COPIES; ++i) {
            const int c = group * args.outputs + (gy_valid >> i & 1 ? first_output + (own_lanes + i * APART) * LANES : 0);
            gy_from[i] = &element<float>(args.gy, cursor.n, c, y, x);
        }
        x_valid = 0;
#pragma unroll
        for (int i = 0; i < X_COPIES; ++i) {
            const Source source = shared.sources[own_lanes + i * APART];
            const i64 from_y = y * args.axes[0].stride + source.row, from_x = x * args.axes[1].stride + source.col;
            const bool is_inside = source.channel >= 0 && from_y >= 0 && from_y < args.axes[0].input;
            x_col[i] = static_cast<int>(from_x);
            x_valid |= static_cast<unsigned>(is_inside) << i;
            x_from[i] = is_inside ? &element<float>(args.x, cursor.n, source.channel, from_y, from_x)
                                  : static_cast<const float*>(args.x.data);
        }
        cursor.col = 0;
        if (++cursor.row == args.share.rows) {
            cursor.row = 0;
            ++cursor.n;
        }
    };
    auto copy_block = [&](int stage, int block, bool is_asked) {
        const int pixel = STEP * block + own;
#pragma unroll
        for (int i = 0; i < GY_COPIES; ++i) {
            copy_async_small<16>(&shared.gy[stage][pixel][(own_lanes + i * APART) * LANES], gy_from[i],
                                 own_left > 0 && (gy_valid >> i & 1), is_asked);
            gy_from[i] += is_asked ? gy_apart : 0;
        }
#pragma unroll
        for (int i = 0; i < X_COPIES; ++i) {
            const bool is_inside = own_left > 0 && (x_valid >> i & 1) && static_cast<unsigned>(x_col[i]) < x_cols;
            copy_async_small<16>(&shared.x[stage][pixel][(own_lanes + i * APART) * LANES], x_from[i], is_inside, is_asked);
            x_from[i] += is_asked ? x_apart : 0;
            x_col[i] += is_asked ? cols_apart : 0;
        }
        own_left -= is_asked ? STEP : 0;
    };

    const int head = args.share.cols - cursor.col < left ? args.share.cols - cursor.col : static_cast<int>(left);
    const i64 tail = left - head, in_row = (args.share.cols + STEP - 1) / STEP;
    const i64 blocks = (head + STEP - 1) / STEP + tail / args.share.cols * in_row + (tail % args.share.cols + STEP - 1) / STEP;
    const i64 steps = (blocks + STEP_BLOCKS - 1) / STEP_BLOCKS;
    i64 steps_left = steps;  // to be copied
    // Copies a step where it is not of one row. Where it is, `copy_block` copies it, and the answer is yes.
    auto prepare = [&](int stage) {
        if (steps_left == 0) return false;
        --steps_left;
        if (blocks_left >= STEP_BLOCKS) {
            blocks_left -= STEP_BLOCKS;
            return true;
        }
#pragma unroll 1
        for (int block = 0; block < STEP_BLOCKS; ++block) {
            if (blocks_left == 0) locate();
            copy_block(stage, block, true);
            --blocks_left;
        }
        return false;
    };

    typename Tile::Of of;
    of.begin(thread);
    float sums[TALL][WIDE][4];
#pragma unroll
    for (int i = 0; i < TALL; ++i) clear(sums[i]);
    // rows lie in pairs of neighbours, so that a load brings two of them
    auto add = [&](int stage, auto between) {
        auto of_outputs = [&](int block, int i, float(&gy)[4]) {
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const float* pixel = &shared.gy[stage][STEP * block + 4 * k + of.in][of.row + 16 * i + 2 * of.across];
                const Vec<float, 2> two = *reinterpret_cast<const Vec<float, 2>*>(pixel);
                gy[2 * k] = two.at[0], gy[2 * k + 1] = two.at[1];
            }
        };
        auto of_term = [&](int block, int k, int j) { return shared.x[stage][STEP * block + 4 * k + of.in][of.col + 8 * j + of.across]; };
        if constexpr (Tile::THRICE) {
            auto of_terms = [&](int j, float(&x)[4]) {
#pragma unroll
                for (int k = 0; k < 4; ++k) x[k] = of_term(k / 2, k % 2, j);
            };
            add_thrice(sums, of_outputs, of_terms, between);
        } else {
            auto rounded_outputs = [&](int block, int i, float(&gy)[4]) {
                of_outputs(block, i, gy);
#pragma unroll
                for (int k = 0; k < 4; ++k) gy[k] = to_tf32(gy[k]);
            };
            auto rounded_terms = [&](int block, int j, float(&x)[4]) {
#pragma unroll
                for (int k = 0; k < 4; ++k) x[k] = to_tf32(of_term(block, k % 2, j + k / 2));
            };
            add_once(sums, rounded_outputs, rounded_terms, between);
        }
    };

#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (prepare(stage)) {
#pragma unroll
            for (int block = 0; block < STEP_BLOCKS; ++block) copy_block(stage, block, true);
        }
        copy_async_commit();
    }
    int stage = 0;
#pragma unroll 1
    for (i64 step = 0; step < steps; ++step) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        const int next = stage == 0 ? STAGES - 1 : stage - 1;
        const bool is_asked = prepare(next);
        add(stage, [&](int block) { copy_block(next, block, is_asked); });
        copy_async_commit();
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    copy_async_wait<0>();

    float* scratch = static_cast<float*>(args.scratch) +
                     (static_cast<i64>(blockIdx.z) * args.groups + group) * args.outputs * args.inputs * taps;
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
        const int term = first_term + of.col + 8 * j + 2 * of.in, tap = term / padded, c = term - tap * padded;
        if (tap >= taps) break;
#pragma unroll
        for (int i = 0; i < 2 * TALL; ++i) {
            const int o = first_output + of.row + i / 2 * 16 + 2 * of.across + i % 2;
            if (o >= args.outputs) break;
            float* to = scratch + (static_cast<i64>(o) * taps + tap) * args.inputs + c;
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                if (c + k < args.inputs) to[k] = sums[i / 2][j][i % 2 * 2 + k];
            }
        }
    }
}

KERNEL(weights_tf32_64, WeightArgs, 128) { weights_tensor<Tile<64, 128, 4, 4, false, 3>>(args); }
KERNEL(weights_tf32_32, WeightArgs, 64) { weights_tensor<Tile<32, 128, 2, 8, false, 3>>(args); }
KERNEL(weights_f32x3_128, WeightArgs, 128) { weights_tensor<Tile<128, 128, 4, 8, true, 4>>(args); }
KERNEL(weights_f32x3_64, WeightArgs, 64) { weights_tensor<Tile<64, 128, 4, 8, true, 4>>(args); }
KERNEL(weights_f32x3_32, WeightArgs, 64) { weights_tensor<Tile<32, 128, 2, 8, true, 4>>(args); }
