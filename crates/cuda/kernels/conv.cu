// Convolution and the gradient for its input by multiply-adds. An output is one chain of them in the order tap, channel, in every
// kernel here, so that neither the tile nor the kernel shows in its bits.
#include "dense.cuh"

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

    const int own_pixel = Of::pixel_of(thread), own_output = Of::output_of(thread);
    const int own_row = own_pixel / how.cols, own_col = own_pixel - own_row * how.cols;
    const int apart = how.is_row ? cols.stride : 1;
    T sums[GATHERED][OWN_OUTPUTS];
#pragma unroll
    for (int j = 0; j < OWN_OUTPUTS; ++j) {
        const T bias = bias_of<T>(args, group, first_output + own_output + j);
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
            &shared.weights[stage][0][own_output / LANES]);
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
                               first_output + own_output);
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

KERNEL(dense_f32_128, ConvArgs, 256, 2) { dense<float, 128, 128, 8, 8>(args); }
KERNEL(dense_f32_64, ConvArgs, 128, 4) { dense<float, 128, 64, 8, 8>(args); }
KERNEL(dense_f32_64_64, ConvArgs, 64, 8) { dense<float, 64, 64, 8, 8>(args); }
KERNEL(dense_f32_32, ConvArgs, 128, 3) { dense<float, 256, 32, 8, 8>(args); }
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
