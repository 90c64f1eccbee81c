// Convolution and the gradient for its input where one channel is summed over for each output, by multiply-adds in the order of the taps.
#include "write.cuh"

// A thread has some lanes of a pixel, and every tap is one load. Weights are [tap][output].
template <typename T, int N>
DEVICE void depthwise(const ConvArgs& args) {
    const int lane_groups = (1 << args.out.shift) / N;
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = at / lane_groups, lane = at % lane_groups * N;
    if (col >= args.part.cols) return;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    const int channels = args.out.channels;
    const int blocks = (channels + (1 << args.out.shift) - 1) >> args.out.shift;
    for (int plane = blockIdx.z; plane < args.part.images * blocks; plane += gridDim.z) {
        const int n = plane / blocks, first = (plane % blocks << args.out.shift) + lane;
        if (first >= channels) continue;
        const T* image = static_cast<const T*>(args.in.data) + n * args.in.batch_stride;
        const T* of_first = image + of_channel(args.in, first / args.multiplier);
        const T* weights = static_cast<const T*>(args.weights) + first;
        for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < args.part.rows; row += gridDim.y * blockDim.y) {
            Vec<T, N> sums[1][1];
#pragma unroll
            for (int j = 0; j < N; ++j) sums[0][0].at[j] = bias_of<T>(args, 0, first + j);
            for (int u = 0; u < rows.taps; ++u) {
                const int y = rows.base + row * rows.stride + u * rows.step;
                if (y < rows.low || y >= rows.high) continue;
                int slot = args.in.first + y;
                if (slot >= args.in.ring) slot -= args.in.ring;
                const i64 of_row = slot * args.in.row_stride;
                const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first;
                const T* weight_from = weights + static_cast<i64>(tap) * args.outputs_padded;
                for (int v = 0; v < cols.taps; ++v, weight_from += cols.next * args.outputs_padded) {
                    const int x = cols.base + col * cols.stride + v * cols.step;
                    if (x < cols.low || x >= cols.high) continue;
                    const i64 of_pixel = of_row + of_pixels(x, args.in.shift);
                    const Vec<T, N> weight = *reinterpret_cast<const Vec<T, N>*>(weight_from);
                    Vec<T, N> in;
                    if (args.multiplier == 1) {
                        in = *reinterpret_cast<const Vec<T, N>*>(of_first + of_pixel);
                    } else {
#pragma unroll
                        for (int j = 0; j < N; ++j) {
                            const int c = (first + j < channels ? first + j : first) / args.multiplier;
                            in.at[j] = image[of_pixel + of_channel(args.in, c)];
                        }
                    }
#pragma unroll
                    for (int j = 0; j < N; ++j) {
                        sums[0][0].at[j] = multiply_add(in.at[j], weight.at[j], sums[0][0].at[j]);
                    }
                }
            }
            write_all<T, N>(args, sums, 0, first, N, [&](int, const View& view) {
                return Column(view, n, y_of(args, row), x_of(args, col), 0);
            });
        }
    }
}

// The same of square windows whose taps are neighbours, over blocks of channels: a thread has some channels of some pixels, one below
// another, its weights in registers, and uses what it loads for all of its pixels. Taps beside the image are products -0, which change no
// sum. Where taps go backwards, the lowest pixel comes first.
template <typename T, int N, int TAPS, int STRIDE, bool IS_BACK, int OWN, int AHEAD>
DEVICE void depthwise_column(const ConvArgs& args) {
    typedef Vec<T, N> Lanes;
    constexpr int BLOCK = 8, ROWS = (OWN - 1) * STRIDE + TAPS;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const int col = at / (BLOCK / N), lane = at % (BLOCK / N) * N, end_row = args.part.rows;
    const int first_row = (blockIdx.y * blockDim.y + threadIdx.y) * OWN;
    if (col >= args.part.cols || first_row >= end_row) return;
    const int first_y = rows.base + first_row * STRIDE + (IS_BACK ? OWN - 1 : 0);
    const int first_x = cols.base + col * STRIDE - (IS_BACK ? TAPS - 1 : 0);  // of those that are read, from the left
    // nothing is read that only pixels past the part would need
    const int beyond = rows.base + (end_row - 1) * STRIDE + (IS_BACK ? 0 : TAPS - 1) + 1;
    const int high = beyond < rows.high ? beyond : rows.high;
    const unsigned row_stride = static_cast<unsigned>(args.in.row_stride);
    const auto cell_of = [](int v) { return IS_BACK ? TAPS - 1 - v : v; };
    const auto is_inside = [&](int v) { return first_x + cell_of(v) >= cols.low && first_x + cell_of(v) < cols.high; };
    const bool is_whole = first_x >= cols.low && first_x + TAPS <= cols.high;
    const int blocks = (args.out.channels + BLOCK - 1) / BLOCK;
    for (int plane = blockIdx.z; plane < args.part.images * blocks; plane += gridDim.z) {
        const int n = plane / blocks, c = (plane - n * blocks) * BLOCK + lane;
        if (c >= args.out.channels) continue;
        const T* image = static_cast<const T*>(args.in.data) + n * args.in.batch_stride + c / BLOCK * args.in.block_stride + lane +
                         static_cast<i64>(first_x) * BLOCK;
        const T* weights = static_cast<const T*>(args.weights) + c;
        Lanes weight[TAPS][TAPS], sums[OWN][1], in[AHEAD + 1][TAPS];
        const auto y_of = [&](int k) { return first_y + (IS_BACK ? -k : k); };
        const auto is_row = [&](int k) { return y_of(k) >= rows.low && y_of(k) < high; };
        const auto load = [&](int k) {
            int slot = args.in.first + y_of(k);
            if (slot >= args.in.ring) slot -= args.in.ring;
            if (!is_row(k)) return;
            const T* from = image + static_cast<u64>(static_cast<unsigned>(slot)) * row_stride;
            if (is_whole) {
#pragma unroll
                for (int v = 0; v < TAPS; ++v) in[k % (AHEAD + 1)][v] = *reinterpret_cast<const Lanes*>(from + cell_of(v) * BLOCK);
                return;
            }
#pragma unroll
            for (int v = 0; v < TAPS; ++v) {
                in[k % (AHEAD + 1)][v] = {};
                if (is_inside(v)) in[k % (AHEAD + 1)][v] = *reinterpret_cast<const Lanes*>(from + cell_of(v) * BLOCK);
            }
        };
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) load(k);
#pragma unroll
        for (int tap = 0; tap < TAPS * TAPS; ++tap) {
            weight[tap / TAPS][tap % TAPS] = *reinterpret_cast<const Lanes*>(weights);
            weights += args.outputs_padded;
        }
        if (!is_whole) {
#pragma unroll
            for (int tap = 0; tap < TAPS * TAPS; ++tap) {
#pragma unroll
                for (int j = 0; j < N; ++j) {
                    T& own = weight[tap / TAPS][tap % TAPS].at[j];
                    own = is_inside(tap % TAPS) ? own : T(-0.0);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const T bias = bias_of<T>(args, 0, c + j);
#pragma unroll
            for (int e = 0; e < OWN; ++e) sums[e][0].at[j] = bias;
        }
#pragma unroll
        for (int k = 0; k < ROWS; ++k) {
            if (k + AHEAD < ROWS) load(k + AHEAD);
            if (!is_row(k)) continue;
#pragma unroll
            for (int v = 0; v < TAPS; ++v) {
#pragma unroll
                for (int e = 0; e < OWN; ++e) {
                    const int u = k - e * STRIDE;
                    if (u < 0 || u >= TAPS) continue;
#pragma unroll
                    for (int j = 0; j < N; ++j) {
                        sums[e][0].at[j] = multiply_add(in[k % (AHEAD + 1)][v].at[j], weight[u][v].at[j], sums[e][0].at[j]);
                    }
                }
            }
        }
        write_all<T, N>(args, sums, 0, c, N, [&](int, const View& view) {
            const Column column(view, n, args.part.row0 + static_cast<i64>(first_row) * args.step[0], x_of(args, col), args.step[0]);
            return [=](int e) {
                const int row = IS_BACK ? OWN - 1 - e : e;
                return first_row + row < end_row ? column(row) : -1;
            };
        });
    }
}

// Blocks of threads that a multiprocessor holds. For sm_120 the compiler moves more loads ahead than that many leave registers for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define BLOCKS 1
#else
#define BLOCKS 2
#endif

KERNEL(depthwise_f32_3x3, ConvArgs, 256, BLOCKS) { depthwise_column<float, 4, 3, 1, false, 4, 3>(args); }
KERNEL(depthwise_f32_3x3_2, ConvArgs, 256, BLOCKS) { depthwise_column<float, 4, 3, 2, false, 4, 2>(args); }
KERNEL(depthwise_f32_3x3_back, ConvArgs, 256, BLOCKS) { depthwise_column<float, 4, 3, 1, true, 4, 3>(args); }
KERNEL(depthwise_f32_5x5, ConvArgs, 256, BLOCKS) { depthwise_column<float, 2, 5, 1, false, 8, 2>(args); }
KERNEL(depthwise_f32_5x5_2, ConvArgs, 256, BLOCKS) { depthwise_column<float, 2, 5, 2, false, 8, 2>(args); }
KERNEL(depthwise_f32_5x5_back, ConvArgs, 256, BLOCKS) { depthwise_column<float, 2, 5, 1, true, 8, 2>(args); }
KERNEL(depthwise_f32_7x7, ConvArgs, 256, BLOCKS) { depthwise_column<float, 1, 7, 1, false, 16, 2>(args); }
KERNEL(depthwise_f32_7x7_2, ConvArgs, 256, BLOCKS) { depthwise_column<float, 1, 7, 2, false, 8, 2>(args); }
KERNEL(depthwise_f32_7x7_back, ConvArgs, 256, BLOCKS) { depthwise_column<float, 1, 7, 1, true, 16, 2>(args); }
KERNEL(depthwise_f32_1, ConvArgs, 256) { depthwise<float, 1>(args); }
KERNEL(depthwise_f32_4, ConvArgs, 256) { depthwise<float, LANES>(args); }
KERNEL(depthwise_f64_1, ConvArgs, 256) { depthwise<double, 1>(args); }
KERNEL(depthwise_f64_4, ConvArgs, 256) { depthwise<double, LANES>(args); }
