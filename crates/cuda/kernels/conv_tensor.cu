// Convolution and the gradient for its input by tensor cores: rows are pixels, columns are output channels.
#include "dense.cuh"
#include "tensor.cuh"

// A tile, and the part of it that a warp has.
template <int TILE_PIXELS, int TILE_OUTPUTS, int TALL_PIECES, int WIDE_PIECES, bool IS_THRICE, int STEPS_HELD>
struct Tile {
    static constexpr bool THRICE = IS_THRICE;
    static constexpr int PIXELS = TILE_PIXELS, OUTPUTS = TILE_OUTPUTS, TALL = TALL_PIECES, WIDE = WIDE_PIECES;
    static constexpr int STEP_BLOCKS = BLOCKS<THRICE>, STAGES = STEPS_HELD;
    typedef Warps<PIXELS, OUTPUTS, TALL, WIDE> Of;
    static constexpr int THREADS = Of::THREADS;
};

typedef Vec<float, LANES> Lanes;

// What a pixel of the tile reads through the first tap.
struct Source {
    const float* image;
    int row, col;
};

template <typename Tile>
struct TensorShared {
    Source sources[Tile::PIXELS];
    union {
        struct {
            // Both halves of a block of a pixel lie together, as in the window; every other four pixels have them the other way round, so
            // that one half of eight pixels comes from different banks.
            Lanes in[Tile::STAGES][Tile::STEP_BLOCKS][2 * Tile::PIXELS];
            Lanes weights[Tile::STAGES][VECTORS * Tile::STEP_BLOCKS][Tile::OUTPUTS];
        };
        // the sums, at last; eight more so that rows begin in different banks
        float sums[Tile::THREADS / 32][16 * Tile::TALL][8 * Tile::WIDE + 8];
    };
};

// Where a half of a block of a pixel lies.
DEVICE int place_in(int pixel, int half) { return 2 * pixel + (half ^ (pixel >> 2 & 1)); }

// A step is so many blocks of channels, in the order tap, block, wherever the tap ends. Weights are [group][tap][channel / 4][output][4].
template <typename Tile>
DEVICE void dense_tensor(const ConvArgs& args) {
    constexpr int PIXELS = Tile::PIXELS, OUTPUTS = Tile::OUTPUTS, TALL = Tile::TALL, WIDE = Tile::WIDE;
    constexpr int THREADS = Tile::THREADS, STAGES = Tile::STAGES, STEP_BLOCKS = Tile::STEP_BLOCKS;
    // of the inputs of a block, and of the weights of a step, for a thread, so many pixels and vectors apart
    constexpr int PIXELS_APART = THREADS / VECTORS, OWN_PIXELS = PIXELS / PIXELS_APART;
    constexpr int VECTORS_APART = THREADS / OUTPUTS, OWN_VECTORS = VECTORS * STEP_BLOCKS / VECTORS_APART;
    static_assert(PIXELS % PIXELS_APART == 0 && THREADS % OUTPUTS == 0 && OWN_VECTORS > 0, "each thread copies as much");
    DYNAMIC_SHARED(TensorShared<Tile>, shared);
    const int thread = threadIdx.x;
    const int group = blockIdx.z, first_output = blockIdx.y * OUTPUTS;
    const i64 first_pixel = static_cast<i64>(blockIdx.x) * PIXELS;
    const i64 pixels = static_cast<i64>(args.part.images) * args.part.rows * args.part.cols;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    for (int i = thread; i < PIXELS; i += THREADS) {
        const i64 number = first_pixel + i;
        const Place place = place_of(args.part, number < pixels ? number : pixels - 1);
        const int block = group * args.reduced >> args.in.shift;
        const float* data = static_cast<const float*>(args.in.data);
        shared.sources[i] = {data + place.n * args.in.batch_stride + block * args.in.block_stride,
                             rows.base + place.row * rows.stride, cols.base + place.col * cols.stride};
    }
    __syncthreads();

    // this thread copies lanes `half` of each block of its pixels, and of the weights some vectors of an output
    const int half = thread % VECTORS, own_pixel = thread / VECTORS;
    const int own_output = thread % OUTPUTS, own_vector = thread / OUTPUTS;
    const bool weight_valid = first_output + own_output < args.outputs_padded;
    const int blocks = args.reduced_padded / STEP;
    const i64 vectors = static_cast<i64>(blocks) * VECTORS;  // of a tap
    const Lanes* weights = static_cast<const Lanes*>(args.weights) +
                           (group * args.kernel_taps * vectors + own_vector) * args.outputs_padded +
                           (weight_valid ? first_output + own_output : 0);
    const i64 in_apart = args.in.block_stride, weights_apart = static_cast<i64>(VECTORS_APART) * args.outputs_padded;

    // the blocks that are still to be copied, the next one of them, and where it lies: looked for where a tap begins
    int left = rows.taps * cols.taps * blocks, u = 0, v = 0, block = 0;
    const float* from[OWN_PIXELS];
    unsigned inside = 0;  // a bit for each pixel
    const Lanes* weights_from = weights;
    auto locate = [&]() {
        if (block > 0) return;
        const int y_step = u * rows.step, x_step = v * cols.step;
        inside = 0;
#pragma unroll
        for (int i = 0; i < OWN_PIXELS; ++i) {
            const Source source = shared.sources[own_pixel + i * PIXELS_APART];
            const int y = source.row + y_step, x = source.col + x_step;
            const bool is_inside = y >= rows.low && y < rows.high && x >= cols.low && x < cols.high;
            int slot = args.in.first + y;
            if (slot >= args.in.ring) slot -= args.in.ring;
            const float* at = source.image + slot * args.in.row_stride + static_cast<i64>(x) * STEP + half * LANES;
            from[i] = is_inside ? at : source.image;
            inside |= static_cast<unsigned>(is_inside) << i;
        }
        const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first + v * cols.next;
        weights_from = weights + tap * vectors * args.outputs_padded;
    };
    auto advance = [&](int by) {
        left -= by;
        block += by;
        if (block < blocks) return;
        block = 0;
        if (++v < cols.taps) return;
        v = 0;
        ++u;
    };
    auto input_of = [&](int stage, int step_block, int i) {
        const int pixel = own_pixel + i * PIXELS_APART;
        return &shared.in[stage][step_block][place_in(pixel, half)].at[0];
    };
    // Copies a step where it is not of whole blocks of one tap. Where it is, `copy_block` copies it, and the answer is yes.
    auto prepare = [&](int stage) {
        if (left <= 0) return false;
        if (block + STEP_BLOCKS <= blocks && (block + STEP_BLOCKS) * STEP <= args.reduced) {
            locate();
            advance(STEP_BLOCKS);
            return true;
        }
#pragma unroll 1
        for (int step_block = 0; step_block < STEP_BLOCKS; ++step_block) {
            const bool is_there = left > 0;
            if (is_there) locate();
            int lanes = is_there ? args.reduced - block * STEP - half * LANES : 0;
            lanes = lanes < 0 ? 0 : lanes > LANES ? LANES : lanes;
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) {
                const bool is_inside = inside >> i & 1;
                copy_async_16(input_of(stage, step_block, i), from[i], is_inside ? lanes * static_cast<int>(sizeof(float)) : 0);
                from[i] += in_apart;
            }
#pragma unroll
            for (int i = 0; i * VECTORS_APART < VECTORS; ++i) {
                const int vector = own_vector + i * VECTORS_APART;
                if (vector >= VECTORS) break;
                copy_async_whole(&shared.weights[stage][step_block * VECTORS + vector][own_output], weights_from + i * weights_apart,
                                 is_there && weight_valid);
            }
            weights_from += static_cast<i64>(VECTORS) * args.outputs_padded;
            advance(1);
        }
        return false;
    };
    auto copy_block = [&](int stage, int step_block, bool is_asked) {
#pragma unroll
        for (int i = 0; i < OWN_PIXELS; ++i) {
            copy_async_whole(input_of(stage, step_block, i), from[i], inside >> i & 1, is_asked);
            from[i] += is_asked ? in_apart : 0;
        }
#pragma unroll
        for (int i = 0; i < OWN_VECTORS; ++i) {
            if (i * STEP_BLOCKS / OWN_VECTORS != step_block) continue;
            copy_async_whole(&shared.weights[stage][own_vector + i * VECTORS_APART][own_output], weights_from, weight_valid, is_asked);
            weights_from += is_asked ? weights_apart : 0;
        }
    };
    auto copy_step = [&](int stage) {
#pragma unroll
        for (int step_block = 0; step_block < STEP_BLOCKS; ++step_block) copy_block(stage, step_block, true);
    };

    typename Tile::Of of;
    of.begin(thread);
    float sums[TALL][WIDE][4];
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float bias = bias_of<float>(args, group, first_output + of.col + 8 * j + 2 * of.in + k % 2);
#pragma unroll
            for (int i = 0; i < TALL; ++i) sums[i][j][k] = bias;
        }
    }
    // the row of the matrices that this lane names: of pixels 16 of both halves; of weights 16 outputs of a block, or 8 of two blocks
    const int lane = thread % 32;
    const int own_row = place_in(of.row + lane % 16, lane / 16);
    const int own_weights = Tile::THRICE ? lane / 8 : lane / 8 % 2;
    const int own_col = of.col + lane % 8 + (Tile::THRICE ? 0 : lane / 16 * 8);
    auto add = [&](int stage, auto between) {
        auto of_pixels = [&](int step_block, int i, float(&x)[4]) {
            load_matrices(x, &shared.in[stage][step_block][own_row + 2 * 16 * i]);
        };
        if constexpr (Tile::THRICE) {
            auto of_outputs = [&](int j, float(&x)[4]) { load_matrices(x, &shared.weights[stage][own_weights][own_col + 8 * j]); };
            add_thrice(sums, of_pixels, of_outputs, between);
        } else {
            auto rounded = [&](int step_block, int i, float(&x)[4]) {
                of_pixels(step_block, i, x);
#pragma unroll
                for (int k = 0; k < 4; ++k) x[k] = to_tf32(x[k]);
            };
            // these were rounded as they were packed
            auto of_outputs = [&](int step_block, int j, float(&x)[4]) {
                load_matrices(x, &shared.weights[stage][step_block * VECTORS + own_weights][own_col + 8 * j]);
            };
            add_once(sums, rounded, of_outputs, between);
        }
    };

    const int steps = (left + STEP_BLOCKS - 1) / STEP_BLOCKS;
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (prepare(stage)) copy_step(stage);
        copy_async_commit();
    }
    int stage = 0;
#pragma unroll 1
    for (int rest = steps; rest > 0; --rest) {
        copy_async_wait<Tile::STAGES - 2>();
        // all have their copies of this step, and none reads the stage before it any more
        __syncthreads();
        const int next = stage == 0 ? STAGES - 1 : stage - 1;
        const bool is_asked = prepare(next);
        if constexpr (Tile::THRICE) {
            // registers are short, and products take three times as long as copies have
            if (is_asked) copy_step(next);
            add(stage, [](int) {});
        } else {
            // copies between products: before them they would keep the loads of factors waiting
            add(stage, [&](int step_block) { copy_block(next, step_block, is_asked); });
        }
        copy_async_commit();
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    copy_async_wait<0>();
    __syncthreads();

    // a lane has the sums of two outputs of many pixels: through shared memory it gets those of a block of one
    auto& own_sums = shared.sums[thread / 32];
#pragma unroll
    for (int i = 0; i < 2 * TALL; ++i) {
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            const Vec<float, 2> two = {sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]};
            *reinterpret_cast<Vec<float, 2>*>(&own_sums[8 * i + of.across][8 * j + 2 * of.in]) = two;
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 16 * TALL; i += 32) {
        const i64 number = first_pixel + of.row + i;
        if (number >= pixels) break;
        const Place place = place_of(args.part, number);
        const i64 y = args.part.row0 + static_cast<i64>(place.row) * args.step[0];
        const i64 x = args.part.col0 + static_cast<i64>(place.col) * args.step[1];
#pragma unroll 1
        for (int j = 0; j < 8 * WIDE; j += 8) {
            const Lanes halves[2] = {lanes_at(&own_sums[i][j]), lanes_at(&own_sums[i][j + LANES])};
            float of_block[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) of_block[k] = halves[k / LANES].at[k % LANES];
            finish<float, 8>(args, of_block, place.n, y, x, group, first_output + of.col + j);
        }
    }
}

KERNEL(dense_tf32_128, ConvArgs, 256) { dense_tensor<Tile<128, 128, 2, 8, false, 3>>(args); }
KERNEL(dense_tf32_64, ConvArgs, 256) { dense_tensor<Tile<256, 64, 2, 8, false, 2>>(args); }
KERNEL(dense_tf32_32, ConvArgs, 128) { dense_tensor<Tile<256, 32, 4, 4, false, 2>>(args); }
KERNEL(dense_f32x3_128, ConvArgs, 128) { dense_tensor<Tile<128, 128, 4, 8, true, 4>>(args); }
KERNEL(dense_f32x3_64, ConvArgs, 128) { dense_tensor<Tile<192, 64, 3, 8, true, 4>>(args); }
KERNEL(dense_f32x3_32, ConvArgs, 128) { dense_tensor<Tile<256, 32, 4, 4, true, 4>>(args); }
