// Gradients of weights by multiply-adds, and the sums of their parts.
#include "weights.cuh"

constexpr int DEPTHWISE_THREADS = 256;
// Taps of a thread, side by side in a row.
constexpr int DEPTHWISE_TAPS = 4;

template <typename T, int TAPS>
struct DepthwiseShared {
    T sums[TAPS][DEPTHWISE_THREADS];
};

// One input and one output channel a group: the threads of a block share out the pixels of a few channels for some taps of a row.
template <typename T, int TAPS>
DEVICE void weights_depthwise(const WeightArgs& args) {
    typedef DepthwiseShared<T, TAPS> Shared;
    SHARED(Shared, shared);
    const WeightAxis rows = args.axes[0], cols = args.axes[1];
    const int thread = threadIdx.x, lanes = 1 << args.gy.shift, apart = DEPTHWISE_THREADS / lanes;
    const int c = (blockIdx.x << args.gy.shift) + thread % lanes, own = thread / lanes, lane = c & (lanes - 1);
    const int of_row = (cols.kernel + TAPS - 1) / TAPS;
    const int u = blockIdx.y / of_row, first_v = (blockIdx.y - u * of_row) * TAPS;
    const int taps = cols.kernel - first_v < TAPS ? cols.kernel - first_v : TAPS, reach = (taps - 1) * cols.dilation;
    i64 begin, end;
    bounds(args, blockIdx.z, begin, end);
    const bool is_real = c < args.groups;
    T sums[TAPS];
#pragma unroll
    for (int v = 0; v < TAPS; ++v) sums[v] = T(0);
    if (is_real && begin + own < end) {
        Cursor cursor(args.share, begin + own);
        for (i64 number = begin + own; number < end;) {
            // the pixels of a row
            const int left = end - number < args.share.cols - cursor.col ? static_cast<int>(end - number) : args.share.cols - cursor.col;
            const int count = (left + apart - 1) / apart;
            const i64 y = args.share.row0 + cursor.row, x = args.share.col0 + cursor.col;
            const i64 from_y = y * rows.stride + static_cast<i64>(u) * rows.dilation - rows.padding;
            const i64 from_x = x * cols.stride + static_cast<i64>(first_v) * cols.dilation - cols.padding;
            if (from_y >= 0 && from_y < rows.input) {
                const T* gy = pixel<T>(args.gy, cursor.n, c >> args.gy.shift, y, x) + lane;
                const T* in = pixel<T>(args.x, cursor.n, c >> args.x.shift, from_y, from_x) + lane;
                const int between = apart << args.gy.shift, in_between = apart * cols.stride << args.x.shift;
                int offsets[TAPS];
#pragma unroll
                for (int v = 0; v < TAPS; ++v) offsets[v] = v < taps ? v * cols.dilation << args.x.shift : 0;
                int at = static_cast<int>(from_x);
#pragma unroll 4
                for (int i = 0; i < count; ++i) {
                    const T of_gy = *gy;
                    if (at >= 0 && at + reach < cols.input) {
                        // (the sums of taps that are none are nobody's)
#pragma unroll
                        for (int v = 0; v < TAPS; ++v) sums[v] = multiply_add(of_gy, in[offsets[v]], sums[v]);
                    } else {
#pragma unroll
                        for (int v = 0; v < TAPS; ++v) {
                            const int own_x = at + v * cols.dilation;
                            if (v < taps && own_x >= 0 && own_x < cols.input) sums[v] = multiply_add(of_gy, in[offsets[v]], sums[v]);
                        }
                    }
                    gy += between;
                    in += in_between;
                    at += apart * cols.stride;
                }
            }
            number += static_cast<i64>(count) * apart;
            if (number < end) cursor.advance(args.share, count * apart);
        }
    }
#pragma unroll
    for (int v = 0; v < TAPS; ++v) shared.sums[v][thread] = sums[v];
    __syncthreads();
    for (int half = DEPTHWISE_THREADS / 2; half >= lanes; half /= 2) {
        if (thread < half) {
#pragma unroll
            for (int v = 0; v < TAPS; ++v) shared.sums[v][thread] += shared.sums[v][thread + half];
        }
        __syncthreads();
    }
    if (thread < lanes * taps && is_real) {
        const int v = thread / lanes;
        const i64 of_channel = (static_cast<i64>(blockIdx.z) * args.groups + c) * rows.kernel * cols.kernel;
        static_cast<T*>(args.scratch)[of_channel + u * cols.kernel + first_v + v] = shared.sums[v][thread % lanes];
    }
}

KERNEL(weights_dense_f32_128, WeightArgs, 128, BLOCKS_90(4, 3)) { weights<float, LANES, LANES, Chains<float, 128, 64, 8, 8>>(args); }
KERNEL(weights_dense_f32_64, WeightArgs, 64, BLOCKS_90(8, 6)) { weights<float, LANES, LANES, Chains<float, 64, 64, 8, 8>>(args); }
KERNEL(weights_dense_f32_32, WeightArgs, 32, BLOCKS_90(12, 8)) { weights<float, LANES, LANES, Chains<float, 32, 64, 8, 8>>(args); }
KERNEL(weights_dense_f64_32, WeightArgs, 64) { weights<double, LANES, LANES, Chains<double, 32, 32, 4, 4>>(args); }
KERNEL(weights_first_f32_64, WeightArgs, 64) { weights<float, LANES, 1, Chains<float, 64, 32, 8, 4>>(args); }
KERNEL(weights_first_f32_32, WeightArgs, 32) { weights<float, LANES, 1, Chains<float, 32, 32, 8, 4>>(args); }
KERNEL(weights_last_f32_8, WeightArgs, 64) { weights<float, 1, LANES, Chains<float, 8, 128, 4, 4>>(args); }
KERNEL(weights_gather_f32_32, WeightArgs, 32) { weights<float, 1, 1, Chains<float, 32, 32, 8, 4>>(args); }
KERNEL(weights_gather_f32_16, WeightArgs, 64) { weights<float, 1, 1, Chains<float, 16, 64, 4, 4>>(args); }
KERNEL(weights_gather_f64_32, WeightArgs, 64) { weights<double, 1, 1, Chains<double, 32, 32, 4, 4>>(args); }
KERNEL(weights_gather_f64_16, WeightArgs, 64) { weights<double, 1, 1, Chains<double, 16, 64, 4, 4>>(args); }
KERNEL(weights_depthwise_f32, WeightArgs, 256, 4) { weights_depthwise<float, DEPTHWISE_TAPS>(args); }
KERNEL(weights_depthwise_f64, WeightArgs, 256) { weights_depthwise<double, DEPTHWISE_TAPS>(args); }

struct AddArgs {
    void* to;          // [output][input][tap]
    const void* from;  // [part][output][tap][input]
    i64 values;
    int parts, inputs, taps, unused;
};

constexpr int AHEAD = 8;

// `to += from[0] + …`: the parts in order, then what was there.
template <typename T>
DEVICE void add_parts(const AddArgs& args) {
    const T* from = static_cast<const T*>(args.from);
    const i64 all = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 at = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; at < args.values; at += all) {
        T sum = from[at];
        // some are on their way at a time
        for (int part = 1; part < args.parts; part += AHEAD) {
            T next[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) next[i] = part + i < args.parts ? from[(part + i) * args.values + at] : T(0);
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                if (part + i < args.parts) sum += next[i];
            }
        }
        const i64 row = at / args.inputs, o = row / args.taps;
        const i64 c = at - row * args.inputs, tap = row - o * args.taps;
        static_cast<T*>(args.to)[(o * args.inputs + c) * args.taps + tap] += sum;
    }
}

KERNEL(add_parts_f32, AddArgs, 256) { add_parts<float>(args); }
KERNEL(add_parts_f64, AddArgs, 256) { add_parts<double>(args); }
