// Convolution and the gradient for its input, as products of matrices that are never formed: pixels by output channels, summed over
// taps and channels. An output is one chain of multiply-adds in the order tap, channel, in every kernel here, so that neither
// the tile nor the kernel shows in its bits.
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
    if (is_whole && N % LANES == 0) {
#pragma unroll
        for (int j = 0; j < N; j += LANES) {
            // a block may end with lanes that are no channel
            if (first + j >= args.outputs) break;
            T* to = &element<T>(args.out, n, first + j, y, x);
            *reinterpret_cast<Vec<T, LANES>*>(to) = *reinterpret_cast<const Vec<T, LANES>*>(&results[j]);
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

constexpr int STAGES = 3;
// Channels of a step: a block of the windows.
constexpr int STEP = 8;
constexpr int VECTORS = STEP / LANES;

template <typename T, int PIXELS, int OUTPUTS>
struct DenseShared {
    Vec<T, LANES> in[STAGES][VECTORS][PIXELS];
    Vec<T, LANES> weights[STAGES][STEP][OUTPUTS / LANES];
};

// Where the channels that are summed over lie in blocks.
template <typename T, int PIXELS, int OUTPUTS, int OWN_PIXELS, int OWN_OUTPUTS>
DEVICE void dense(const ConvArgs& args) {
    typedef Tiling<PIXELS, OUTPUTS, OWN_PIXELS, OWN_OUTPUTS> Of;
    typedef DenseShared<T, PIXELS, OUTPUTS> Shared;
    constexpr int THREADS = Of::THREADS;
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

    const int own_pixel = Of::pixel_of(thread), own_output = Of::output_of(thread);
    T sums[OWN_PIXELS][OWN_OUTPUTS];
#pragma unroll
    for (int j = 0; j < OWN_OUTPUTS; ++j) {
        const T bias = bias_of<T>(args, group, first_output + own_output * OWN_OUTPUTS + j);
#pragma unroll
        for (int i = 0; i < OWN_PIXELS; ++i) sums[i][j] = bias;
    }

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
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        advance(end - begin);
    }
    copy_async_wait<0>();

#pragma unroll
    for (int i = 0; i < OWN_PIXELS; ++i) {
        const i64 number = first_pixel + own_pixel + i * Of::ACROSS;
        if (number >= pixels) break;
        const Place place = place_of(args.part, number);
        finish<T, OWN_OUTPUTS>(args, sums[i], place.n, args.part.row0 + static_cast<i64>(place.row) * args.step[0],
                               args.part.col0 + static_cast<i64>(place.col) * args.step[1], group,
                               first_output + own_output * OWN_OUTPUTS);
    }
}

// Pixels of a thread, side by side in a row.
constexpr int GATHERED = 4;

template <typename T, int PIXELS, int OUTPUTS>
struct GatherShared {
    static constexpr int CELLS = PIXELS * 16, TERMS = 48;
    T in[2][CELLS];
    Vec<T, LANES> weights[2][TERMS][OUTPUTS / LANES];
    int offsets[TERMS];  // in bytes
};

// The terms of some cells in shared memory: pixel i of this thread lies `i·APART` on, or `i·apart` where that is none.
template <int APART, typename T, int OWN_OUTPUTS, int ALONG>
DEVICE void add_terms(const T* cells, const Vec<T, LANES> (*weights)[ALONG], const int* offsets, int terms, int apart,
                      T (&sums)[GATHERED][OWN_OUTPUTS]) {
#pragma unroll 4
    for (int term = 0; term < terms; ++term) {
        const T* from = reinterpret_cast<const T*>(reinterpret_cast<const char*>(cells) + offsets[term]);
        T in[GATHERED];
#pragma unroll
        for (int i = 0; i < GATHERED; ++i) in[i] = from[i * (APART != 0 ? APART : apart)];
        Vec<T, LANES> weight[OWN_OUTPUTS / LANES];
#pragma unroll
        for (int j = 0; j < OWN_OUTPUTS / LANES; ++j) weight[j] = weights[term][j];
#pragma unroll
        for (int i = 0; i < GATHERED; ++i) {
#pragma unroll
            for (int j = 0; j < OWN_OUTPUTS; ++j) {
                sums[i][j] = multiply_add(in[i], weight[j / LANES].at[j % LANES], sums[i][j]);
            }
        }
    }
}

// Where the channels that are summed over are few, or begin within a block. A block of threads has a rectangle of outputs, and goes
// through the terms in chunks whose inputs lie in shared memory: a row of taps with all its channels where that fits, else some channels
// of one tap.
template <typename T, int PIXELS, int OUTPUTS, int OWN_OUTPUTS>
DEVICE void gather(const ConvArgs& args) {
    typedef Tiling<PIXELS, OUTPUTS, GATHERED, OWN_OUTPUTS> Of;
    typedef GatherShared<T, PIXELS, OUTPUTS> Shared;
    constexpr int THREADS = Of::THREADS, VECTORS_ALONG = OUTPUTS / LANES;
    SHARED(Shared, shared);
    const int thread = threadIdx.x, group = blockIdx.z, first_output = blockIdx.y * OUTPUTS;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    const Gathered how = args.gathered;
    const int across = (args.part.cols + how.cols - 1) / how.cols, down = (args.part.rows + how.rows - 1) / how.rows;
    const int number = blockIdx.x, n = number / (across * down);
    const int tile_row = number / across - n * down;
    const int first_row = tile_row * how.rows, first_col = (number - (n * down + tile_row) * across) * how.cols;

    const int taps = how.is_row ? cols.taps : 1, channels = how.channels;  // of a chunk
    const int before = how.is_row && cols.step < 0 ? (cols.taps - 1) * cols.step : 0;
    const int line = how.rows * how.pitch;  // cells of a channel
    for (int term = thread; term < taps * channels; term += THREADS) {
        const int v = term / channels, channel = term - v * channels;
        const int cell = channel * line + (how.is_row ? v * cols.step - before : 0);
        shared.offsets[term] = cell * static_cast<int>(sizeof(T));
    }
    // past the last output of the part nothing is read
    const int beyond = cols.base + (args.part.cols - 1) * cols.stride + (cols.step > 0 ? (cols.taps - 1) * cols.step : 0) + 1;
    const int high = beyond < cols.high ? beyond : cols.high;
    const int cell_step = how.is_row ? 1 : cols.stride;
    const int mask = (1 << args.in.shift) - 1;
    const T* image = static_cast<const T*>(args.in.data) + n * args.in.batch_stride;
    const T* weights = static_cast<const T*>(args.weights) +
                       static_cast<i64>(group) * args.kernel_taps * args.reduced_padded * args.outputs_padded + first_output;

    int u = 0, v = 0, channel = 0;  // where the chunk begins that is copied next
    auto copy = [&](int stage) {
        const int count = args.reduced - channel < channels ? args.reduced - channel : channels;
        const int x0 = cols.base + first_col * cols.stride + (how.is_row ? before : v * cols.step);
        for (int at = thread / 32; at < count * how.rows; at += THREADS / 32) {
            const int c = at / how.rows, r = at - c * how.rows, own = group * args.reduced + channel + c;
            const int y = rows.base + (first_row + r) * rows.stride + u * rows.step;
            const bool is_row = first_row + r < args.part.rows && y >= rows.low && y < rows.high;
            int slot = args.in.first + y;
            if (slot >= args.in.ring) slot -= args.in.ring;
            const T* row = is_row ? image + (own >> args.in.shift) * args.in.block_stride + slot * args.in.row_stride + (own & mask)
                                  : static_cast<const T*>(args.in.data);
            T* to = &shared.in[stage][c * line + r * how.pitch];
            for (int cell = thread % 32; cell < how.pitch; cell += 32) {
                const int x = x0 + cell * cell_step;
                const bool is_inside = is_row && x >= cols.low && x < high;
                copy_async_small<sizeof(T)>(to + cell, is_inside ? row + of_pixels(x, args.in.shift) : row, is_inside);
            }
        }
        for (int at = thread; at < taps * count * VECTORS_ALONG; at += THREADS) {
            const int term = at / VECTORS_ALONG, lane = at % VECTORS_ALONG * LANES;
            const int own = term / count, c = channel + term - own * count;
            const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first + (v + own) * cols.next;
            const bool is_real = first_output + lane < args.outputs_padded;
            const T* from = weights + (static_cast<i64>(tap) * args.reduced_padded + c) * args.outputs_padded;
            copy_lanes<LANES>(&shared.weights[stage][term][lane / LANES].at[0], is_real ? from + lane : weights, is_real);
        }
        channel += channels;
        if (channel < args.reduced) return;
        channel = 0;
        v += taps;
        if (v < cols.taps) return;
        v = 0;
        ++u;
    };

    const int own_pixel = Of::pixel_of(thread) * GATHERED, own_output = Of::output_of(thread);
    const int own_row = own_pixel / how.cols, own_col = own_pixel - own_row * how.cols;
    const int apart = how.is_row ? cols.stride : 1;
    T sums[GATHERED][OWN_OUTPUTS];
#pragma unroll
    for (int j = 0; j < OWN_OUTPUTS; ++j) {
        const T bias = bias_of<T>(args, group, first_output + own_output * OWN_OUTPUTS + j);
#pragma unroll
        for (int i = 0; i < GATHERED; ++i) sums[i][j] = bias;
    }
    const int of_a_tap = (args.reduced + channels - 1) / channels;
    const int chunks = cols.taps == 0 ? 0 : rows.taps * (cols.taps / taps) * of_a_tap;
    if (chunks > 0) copy(0);
    copy_async_commit();
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const int stage = chunk % 2;
        if (chunk + 1 < chunks) copy(1 - stage);
        copy_async_commit();
        copy_async_wait<1>();
        __syncthreads();
        const int left = args.reduced - chunk % of_a_tap * channels;
        const int terms = taps * (left < channels ? left : channels);
        const T* cells = &shared.in[stage][own_row * how.pitch + own_col * apart];
        const auto* own_weights = reinterpret_cast<const Vec<T, LANES>(*)[VECTORS_ALONG]>(
            &shared.weights[stage][0][own_output * (OWN_OUTPUTS / LANES)]);
        if (apart == 1) {
            add_terms<1>(cells, own_weights, shared.offsets, terms, apart, sums);
        } else {
            add_terms<0>(cells, own_weights, shared.offsets, terms, apart, sums);
        }
        __syncthreads();
    }
    copy_async_wait<0>();

    if (first_row + own_row >= args.part.rows) return;
#pragma unroll
    for (int i = 0; i < GATHERED; ++i) {
        const int col = first_col + own_col + i;
        if (col >= args.part.cols) break;
        finish<T, OWN_OUTPUTS>(args, sums[i], n, args.part.row0 + static_cast<i64>(first_row + own_row) * args.step[0],
                               args.part.col0 + static_cast<i64>(col) * args.step[1], group,
                               first_output + own_output * OWN_OUTPUTS);
    }
}

// One channel is summed over for each output: a thread has some lanes of a pixel, and every tap is one load. Weights are [tap][output].
template <typename T, int N>
DEVICE void depthwise(const ConvArgs& args) {
    const int lane_groups = (1 << args.out.shift) / N;
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = at / lane_groups, lane = at % lane_groups * N;
    if (col >= args.part.cols) return;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    const int channels = args.out.channels;
    const int blocks = (channels + (1 << args.out.shift) - 1) >> args.out.shift;
    const int mask = (1 << args.in.shift) - 1;
    const T* weights = static_cast<const T*>(args.weights);
    for (int plane = blockIdx.z; plane < args.part.images * blocks; plane += gridDim.z) {
        const int n = plane / blocks, first = (plane % blocks << args.out.shift) + lane;
        if (first >= channels) continue;
        const T* image = static_cast<const T*>(args.in.data) + n * args.in.batch_stride;
        for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < args.part.rows; row += gridDim.y * blockDim.y) {
            T sums[N];
#pragma unroll
            for (int j = 0; j < N; ++j) sums[j] = bias_of<T>(args, 0, first + j);
            for (int u = 0; u < rows.taps; ++u) {
                const int y = rows.base + row * rows.stride + u * rows.step;
                if (y < rows.low || y >= rows.high) continue;
                int slot = args.in.first + y;
                if (slot >= args.in.ring) slot -= args.in.ring;
                for (int v = 0; v < cols.taps; ++v) {
                    const int x = cols.base + col * cols.stride + v * cols.step;
                    if (x < cols.low || x >= cols.high) continue;
                    const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first + v * cols.next;
                    const T* from = image + slot * args.in.row_stride + of_pixels(x, args.in.shift);
                    const Vec<T, N> weight =
                        *reinterpret_cast<const Vec<T, N>*>(weights + static_cast<i64>(tap) * args.outputs_padded + first);
                    Vec<T, N> in;
                    if (args.multiplier == 1) {
                        in = *reinterpret_cast<const Vec<T, N>*>(from + (first >> args.in.shift) * args.in.block_stride +
                                                                 (first & mask));
                    } else {
#pragma unroll
                        for (int j = 0; j < N; ++j) {
                            const int c = (first + j < channels ? first + j : first) / args.multiplier;
                            in.at[j] = from[(c >> args.in.shift) * args.in.block_stride + (c & mask)];
                        }
                    }
#pragma unroll
                    for (int j = 0; j < N; ++j) sums[j] = multiply_add(in.at[j], weight.at[j], sums[j]);
                }
            }
            finish<T, N>(args, sums, n, args.part.row0 + static_cast<i64>(row) * args.step[0],
                         args.part.col0 + static_cast<i64>(col) * args.step[1], 0, first);
        }
    }
}

KERNEL(dense_f32_128, ConvArgs, 256) { dense<float, 128, 128, 8, 8>(args); }
KERNEL(dense_f32_64, ConvArgs, 128) { dense<float, 128, 64, 8, 8>(args); }
KERNEL(dense_f32_64_64, ConvArgs, 64) { dense<float, 64, 64, 8, 8>(args); }
KERNEL(dense_f32_32, ConvArgs, 128) { dense<float, 256, 32, 8, 8>(args); }
KERNEL(dense_f32_8, ConvArgs, 128) { dense<float, 256, 8, 2, 8>(args); }
KERNEL(dense_f32_4, ConvArgs, 64) { dense<float, 256, 4, 4, 4>(args); }
KERNEL(dense_f64_64, ConvArgs, 128) { dense<double, 64, 64, 4, 8>(args); }
KERNEL(dense_f64_32, ConvArgs, 64) { dense<double, 64, 32, 4, 8>(args); }
KERNEL(dense_f64_8, ConvArgs, 64) { dense<double, 64, 8, 1, 8>(args); }

KERNEL(gather_f32_64, ConvArgs, 128) { gather<float, 128, 64, 16>(args); }
KERNEL(gather_f32_32, ConvArgs, 64) { gather<float, 128, 32, 16>(args); }
KERNEL(gather_f32_8, ConvArgs, 64) { gather<float, 256, 8, 8>(args); }
KERNEL(gather_f64_32, ConvArgs, 64) { gather<double, 64, 32, 8>(args); }
KERNEL(gather_f64_8, ConvArgs, 32) { gather<double, 128, 8, 8>(args); }

KERNEL(depthwise_f32_1, ConvArgs, 256) { depthwise<float, 1>(args); }
KERNEL(depthwise_f32_4, ConvArgs, 256) { depthwise<float, LANES>(args); }
KERNEL(depthwise_f64_1, ConvArgs, 256) { depthwise<double, 1>(args); }
KERNEL(depthwise_f64_4, ConvArgs, 256) { depthwise<double, LANES>(args); }
