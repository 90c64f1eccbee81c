// Convolution and the gradient for its input, as products of matrices that are never formed: pixels by output channels, summed over
// taps and channels, a step of channels at a time through shared memory; what adds up the products of a step is a type of its own.
#pragma once

#include "device.cuh"
#include "ptx.cuh"

// Along an axis, relative to the first row or column of the window that is read:
//   source of output t through tap j = base + t·stride + j·step, which counts where it lies in [low, high)
//   weight of tap j = first + j·next
struct ConvAxis {
    int base, stride, step, taps;
    int low, high;
    int first, next;
};

// How the gathering kernels share out a part and its terms.
struct Gathered {
    int rows, cols;  // of the outputs of a block of threads
    int is_row;      // whether a chunk of terms is a row of taps with all channels, else some channels of one tap
    int channels;    // of a chunk
    int pitch;       // cells of a row of inputs in shared memory
    int unused;
};

struct ConvArgs {
    View in, out, added, saved;
    Part part;            // rows and columns count the outputs of a class, whose first lies at row0, col0
    ConvAxis axes[2];
    int step[2];          // from one output of a class to the next
    int kernel_cols, kernel_taps;
    int groups;
    int multiplier;       // output channels of an input channel, where each output has one
    int reduced;          // channels that are summed over, of a group
    int reduced_padded;   // the same in the weights
    int outputs;          // output channels of a group
    int outputs_padded;   // the same in the weights
    const void* weights;  // [group][tap][channel][output]
    const void* bias;     // of each output channel, or nothing
    const void* affine;   // factors, then what is added to their products, or nothing
    int affine_len;
    int sums;             // whether `added` is added
    int activation;       // 0 none, 1 ReLU, 2 leaky ReLU
    int mask;             // the same of what `saved` masks
    double slope, mask_slope;
    Gathered gathered;
};

// What follows the sum of a pixel: as kernels of their own would round it.
template <typename T>
DEVICE T follow(const ConvArgs& args, T value, int channel, T added, T saved) {
    if (args.affine != nullptr) {
        const T* factors = static_cast<const T*>(args.affine);
        value = multiply_add(value, factors[channel], factors[args.affine_len + channel]);
    }
    if (args.sums != 0) value += added;
    if (args.activation == 1) value = value <= T(0) ? T(0) : value;
    if (args.activation == 2) value = value > T(0) ? value : value * static_cast<T>(args.slope);
    if (args.mask == 1) value = saved <= T(0) ? T(0) : value;
    if (args.mask == 2) value = saved > T(0) ? value : value * static_cast<T>(args.mask_slope);
    return value;
}

// Writes some lanes of a pixel, whose first channel is a multiple of them; those past the last channel of the group are left out.
template <typename T, int N>
DEVICE void finish(const ConvArgs& args, const T (&sums)[N], int n, i64 y, i64 x, int group, int first) {
    const bool is_whole = args.out.shift > 0 && args.groups == 1;
    T results[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const bool is_real = first + j < args.outputs;
        const int c = group * args.outputs + (is_real ? first + j : 0);
        const T added = args.sums != 0 ? element<T>(args.added, n, c, y, x) : T(0);
        const T saved = args.mask != 0 ? element<T>(args.saved, n, c, y, x) : T(0);
        results[j] = follow(args, sums[j], c, added, saved);
    }
    constexpr int TOGETHER = N < LANES ? N : LANES;
    if (is_whole && N > 1) {
#pragma unroll
        for (int j = 0; j < N; j += TOGETHER) {
            // a block may end with lanes that are no channel
            if (first + j >= args.outputs) break;
            T* to = &element<T>(args.out, n, first + j, y, x);
            *reinterpret_cast<Vec<T, TOGETHER>*>(to) = *reinterpret_cast<const Vec<T, TOGETHER>*>(&results[j]);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
        if (first + j < args.outputs) element<T>(args.out, n, group * args.outputs + first + j, y, x) = results[j];
    }
}

template <typename T>
DEVICE T bias_of(const ConvArgs& args, int group, int output) {
    if (args.bias == nullptr || output >= args.outputs) return T(0);
    return static_cast<const T*>(args.bias)[group * args.outputs + output];
}

// An output of a class by its number: image, row, column.
struct Place {
    int n, row, col;
};
DEVICE Place place_of(const Part& part, i64 number) {
    const i64 plane = static_cast<i64>(part.rows) * part.cols;
    const int n = static_cast<int>(number / plane);
    const i64 rest = number - n * plane;
    const int row = static_cast<int>(rest / part.cols);
    return {n, row, static_cast<int>(rest - static_cast<i64>(row) * part.cols)};
}

// Writes some lanes of an output of a class by its number.
template <typename T, int N>
DEVICE void write_pixel(const ConvArgs& args, const T (&sums)[N], i64 number, int group, int first) {
    const Place place = place_of(args.part, number);
    finish<T, N>(args, sums, place.n, args.part.row0 + static_cast<i64>(place.row) * args.step[0],
                 args.part.col0 + static_cast<i64>(place.col) * args.step[1], group, first);
}

// How a block of threads shares out its tile: PIXELS by OUTPUTS, of which a thread has OWN_PIXELS, apart by a constant, by
// OWN_OUTPUTS that lie together. A warp has eight neighbouring pixels by four groups of outputs where there are as many.
template <int PIXELS, int OUTPUTS, int OWN_PIXELS, int OWN_OUTPUTS>
struct Tiling {
    static constexpr int ACROSS = PIXELS / OWN_PIXELS, ALONG = OUTPUTS / OWN_OUTPUTS;
    static constexpr int THREADS = ACROSS * ALONG;
    static constexpr int WARP_ALONG = ALONG < 4 ? ALONG : 4, WARP_ACROSS = 32 / WARP_ALONG;
    static DEVICE int pixel_of(int thread) {
        return thread % 32 % WARP_ACROSS + thread / 32 % (ACROSS / WARP_ACROSS) * WARP_ACROSS;
    }
    static DEVICE int output_of(int thread) {
        return thread % 32 / WARP_ACROSS + thread / 32 / (ACROSS / WARP_ACROSS) * WARP_ALONG;
    }
};

// Channels of a step: a block of the windows.
constexpr int STEP = 8;
constexpr int VECTORS = STEP / LANES;

template <typename T, typename Sums>
struct DenseShared {
    Vec<T, LANES> in[Sums::STAGES][VECTORS][Sums::PIXELS];
    Vec<T, LANES> weights[Sums::STAGES][STEP][Sums::OUTPUTS / LANES + Sums::SPARE];
};

// The sums of a tile by multiply-adds: of each output one chain of them.
template <typename T, int TILE_PIXELS, int TILE_OUTPUTS, int OWN_PIXELS, int OWN_OUTPUTS>
struct Chains {
    typedef Tiling<TILE_PIXELS, TILE_OUTPUTS, OWN_PIXELS, OWN_OUTPUTS> Of;
    static constexpr int PIXELS = TILE_PIXELS, OUTPUTS = TILE_OUTPUTS, THREADS = Of::THREADS;
    static constexpr int STAGES = 3, SPARE = 0;
    int own_pixel, own_output;
    T sums[OWN_PIXELS][OWN_OUTPUTS];

    DEVICE void begin(const ConvArgs& args, int thread, int group, int first_output) {
        own_pixel = Of::pixel_of(thread), own_output = Of::output_of(thread);
#pragma unroll
        for (int j = 0; j < OWN_OUTPUTS; ++j) {
            const T bias = bias_of<T>(args, group, first_output + own_output * OWN_OUTPUTS + j);
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) sums[i][j] = bias;
        }
    }

    DEVICE void add(const DenseShared<T, Chains>& shared, int stage) {
#pragma unroll
        for (int vector = 0; vector < VECTORS; ++vector) {
            Vec<T, LANES> in[OWN_PIXELS];
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) in[i] = shared.in[stage][vector][own_pixel + i * Of::ACROSS];
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                Vec<T, LANES> weight[OWN_OUTPUTS / LANES];
#pragma unroll
                for (int j = 0; j < OWN_OUTPUTS / LANES; ++j) {
                    weight[j] = shared.weights[stage][vector * LANES + lane][own_output * (OWN_OUTPUTS / LANES) + j];
                }
#pragma unroll
                for (int i = 0; i < OWN_PIXELS; ++i) {
#pragma unroll
                    for (int j = 0; j < OWN_OUTPUTS; ++j) {
                        sums[i][j] = multiply_add(in[i].at[lane], weight[j / LANES].at[j % LANES], sums[i][j]);
                    }
                }
            }
        }
    }

    DEVICE void write(const ConvArgs& args, i64 first_pixel, i64 pixels, int group, int first_output) {
#pragma unroll
        for (int i = 0; i < OWN_PIXELS; ++i) {
            const i64 number = first_pixel + own_pixel + i * Of::ACROSS;
            if (number >= pixels) break;
            write_pixel<T, OWN_OUTPUTS>(args, sums[i], number, group, first_output + own_output * OWN_OUTPUTS);
        }
    }
};

// Where the channels that are summed over lie in blocks.
template <typename T, typename Sums>
DEVICE void dense(const ConvArgs& args) {
    typedef DenseShared<T, Sums> Shared;
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

#pragma unroll
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
