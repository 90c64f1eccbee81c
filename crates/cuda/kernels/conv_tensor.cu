// Convolution and the gradient for its input by tensor cores.
#include "dense.cuh"
#include "tensor.cuh"

template <typename T, typename Sums>
struct TensorShared {
    Vec<T, LANES> in[Sums::STAGES][VECTORS][Sums::PIXELS];
    Vec<T, LANES> weights[Sums::STAGES][STEP][Sums::OUTPUTS / LANES + Sums::SPARE];
};

// The sums of a tile: rows are pixels, columns are output channels.
template <int TILE_PIXELS, int TILE_OUTPUTS, bool THRICE>
struct Products {
    static constexpr int PIXELS = TILE_PIXELS, OUTPUTS = TILE_OUTPUTS, TALL = 4, WIDE = 4;
    typedef Warps<PIXELS, OUTPUTS, TALL, WIDE> Of;
    static constexpr int THREADS = Of::THREADS, STAGES = 5;
    static constexpr int SPARE = 2;  // so that rows of weights begin in different banks
    Of of;
    float sums[TALL][WIDE][4];

    DEVICE void begin(const ConvArgs& args, int thread, int group, int first_output) {
        of.begin(thread);
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float bias = bias_of<float>(args, group, first_output + of.col + 8 * j + 2 * of.in + k % 2);
#pragma unroll
                for (int i = 0; i < TALL; ++i) sums[i][j][k] = bias;
            }
        }
    }

    DEVICE void add(const TensorShared<float, Products>& shared, int stage) {
        Factors<2> weights[WIDE];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float* row = &shared.weights[stage][of.in + 4 * k][0].at[of.col + of.across];
#pragma unroll
            for (int j = 0; j < WIDE; ++j) set_factor<THRICE>(weights[j], k, row[8 * j]);
        }
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
            Factors<4> in;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int pixel = of.row + 16 * i + k % 2 * 8 + of.across;
                set_factor<THRICE>(in, k, shared.in[stage][k / 2][pixel].at[of.in]);
            }
#pragma unroll
            for (int j = 0; j < WIDE; ++j) add_products<THRICE>(sums[i][j], in, weights[j]);
        }
    }

    DEVICE void write(const ConvArgs& args, i64 first_pixel, i64 pixels, int group, int first_output) {
#pragma unroll
        for (int i = 0; i < 2 * TALL; ++i) {
            const i64 number = first_pixel + of.row + 8 * i + of.across;
            if (number >= pixels) break;
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                const float two[2] = {sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]};
                write_pixel<float, 2>(args, two, number, group, first_output + of.col + 8 * j + 2 * of.in);
            }
        }
    }
};

// Where the channels that are summed over lie in blocks.
template <typename T, typename Sums>
DEVICE void multiply(const ConvArgs& args) {
    typedef TensorShared<T, Sums> Shared;
    constexpr int PIXELS = Sums::PIXELS, OUTPUTS = Sums::OUTPUTS, THREADS = Sums::THREADS, STAGES = Sums::STAGES;
    constexpr int IN_COPIES = PIXELS * VECTORS / THREADS, WEIGHT_COPIES = STEP * OUTPUTS / LANES;
    static_assert(PIXELS * VECTORS % THREADS == 0 && THREADS % VECTORS == 0, "each thread copies as much");
    // of the weights, for a thread, so many channels apart
    constexpr int WEIGHT_LANES = OUTPUTS / LANES, OWN_WEIGHTS = (WEIGHT_COPIES + THREADS - 1) / THREADS;
    constexpr int WEIGHTS_APART = THREADS / WEIGHT_LANES;
    static_assert(WEIGHT_COPIES <= THREADS || WEIGHT_COPIES % THREADS == 0, "each thread copies as many of the weights");
    SHARED(Shared, shared);
    const int thread = threadIdx.x;
    const int group = blockIdx.z, first_output = blockIdx.y * OUTPUTS;
    const i64 first_pixel = static_cast<i64>(blockIdx.x) * PIXELS;
    const i64 pixels = static_cast<i64>(args.part.images) * args.part.rows * args.part.cols;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];

    // what this thread copies: lanes `half` of a channel block, of the pixels `thread / VECTORS` and so on
    const int half = thread % VECTORS;
    const T* image[IN_COPIES];
    int row[IN_COPIES], col[IN_COPIES];
#pragma unroll
    for (int i = 0; i < IN_COPIES; ++i) {
        const i64 number = first_pixel + thread / VECTORS + i * (THREADS / VECTORS);
        const Place place = place_of(args.part, number < pixels ? number : pixels - 1);
        const int block = group * args.reduced >> args.in.shift;
        image[i] = static_cast<const T*>(args.in.data) + place.n * args.in.batch_stride + block * args.in.block_stride +
                   half * LANES;
        row[i] = rows.base + place.row * rows.stride;
        col[i] = cols.base + place.col * cols.stride;
    }
    // of the weights: lanes `weight_lane` of channel `weight_channel` of each step
    const int weight_channel = thread / WEIGHT_LANES, weight_lane = thread % WEIGHT_LANES;
    const bool copies_weights = WEIGHT_COPIES >= THREADS || thread < WEIGHT_COPIES;
    const bool weight_valid = first_output + weight_lane * LANES < args.outputs_padded;
    const T* weights = static_cast<const T*>(args.weights) +
                       (static_cast<i64>(group) * args.kernel_taps * args.reduced_padded + weight_channel) * args.outputs_padded +
                       (weight_valid ? first_output + weight_lane * LANES : 0);

    const int blocks = args.reduced_padded / STEP;
    const int steps = rows.taps * cols.taps * blocks;
    // of the step that is copied next: the tap, the blocks that it still has, and what this thread copies from
    int u = 0, v = 0, blocks_left = blocks, channels_left = 0;
    const T* from[IN_COPIES];
    int kept[IN_COPIES];  // all bits where that lies in the image, else none
    const T* weights_from = weights;
    const i64 weights_apart = static_cast<i64>(WEIGHTS_APART) * args.outputs_padded;
    const i64 weights_step = static_cast<i64>(STEP) * args.outputs_padded;
    auto locate = [&]() {
        const int y_step = u * rows.step, x_step = v * cols.step;
#pragma unroll
        for (int i = 0; i < IN_COPIES; ++i) {
            const int y = row[i] + y_step, x = col[i] + x_step;
            const bool is_inside = y >= rows.low && y < rows.high && x >= cols.low && x < cols.high;
            kept[i] = is_inside ? -1 : 0;
            int slot = args.in.first + y;
            if (slot >= args.in.ring) slot -= args.in.ring;
            from[i] = is_inside ? image[i] + slot * args.in.row_stride + x * STEP : static_cast<const T*>(args.in.data);
        }
        const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first + v * cols.next;
        weights_from = weights + static_cast<i64>(tap) * args.reduced_padded * args.outputs_padded;
        channels_left = args.reduced - half * LANES;
    };
    auto copy = [&](int stage) {
        const int lanes = channels_left < 0 ? 0 : channels_left > LANES ? LANES : channels_left;
#pragma unroll
        for (int i = 0; i < IN_COPIES; ++i) {
            copy_some_lanes(&shared.in[stage][half][thread / VECTORS + i * (THREADS / VECTORS)].at[0], from[i], lanes & kept[i]);
            from[i] += args.in.block_stride;
        }
#pragma unroll
        for (int i = 0; i < OWN_WEIGHTS; ++i) {
            if (!copies_weights) break;
            copy_lanes<LANES>(&shared.weights[stage][weight_channel + i * WEIGHTS_APART][weight_lane].at[0],
                              weights_from + i * weights_apart, weight_valid);
        }
        weights_from += weights_step;
        channels_left -= STEP;
    };
    // after so many copies
    auto advance = [&](int copies) {
        blocks_left -= copies;
        if (blocks_left > 0) return;
        blocks_left = blocks;
        if (++v == cols.taps) {
            v = 0;
            ++u;
        }
        locate();
    };
    locate();

    Sums sums;
    sums.begin(args, thread, group, first_output);

#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) copy(stage);
        copy_async_commit();
        advance(1);
    }
    int stage = 0;
    // the steps whose copies are of one tap are a loop of their own, in which no place is looked for
    for (int begin = 0, end; begin < steps; begin = end) {
        end = begin + blocks_left < steps ? begin + blocks_left : steps;
        int copies = steps - (STAGES - 1) - begin;  // to come
        for (int left = end - begin; left > 0; --left) {
            copy_async_wait<STAGES - 2>();
            // all have their copies of this step, and none reads the stage before it any more
            __syncthreads();
            const int next = stage == 0 ? STAGES - 1 : stage - 1;
            if (copies-- > 0) copy(next);
            copy_async_commit();
            sums.add(shared, stage);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        advance(end - begin);
    }
    copy_async_wait<0>();
    sums.write(args, first_pixel, pixels, group, first_output);
}

KERNEL(dense_tf32_128, ConvArgs, 256) { multiply<float, Products<128, 128, false>>(args); }
KERNEL(dense_tf32_64, ConvArgs, 128) { multiply<float, Products<128, 64, false>>(args); }
KERNEL(dense_tf32_32, ConvArgs, 128) { multiply<float, Products<256, 32, false>>(args); }
KERNEL(dense_f32x3_128, ConvArgs, 256) { multiply<float, Products<128, 128, true>>(args); }
KERNEL(dense_f32x3_64, ConvArgs, 128) { multiply<float, Products<128, 64, true>>(args); }
KERNEL(dense_f32x3_32, ConvArgs, 128) { multiply<float, Products<256, 32, true>>(args); }
