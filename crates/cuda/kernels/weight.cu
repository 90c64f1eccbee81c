// Gradients of weights by multiply-adds, and the sums of their parts.
#include "weights.cuh"

constexpr int DEPTHWISE_THREADS = 256;

template <typename T>
struct DepthwiseShared {
    T sums[DEPTHWISE_THREADS];
};

// One input and one output channel a group: the threads of a block share out the pixels of a few channels, tap by tap.
template <typename T>
DEVICE void weights_depthwise(const WeightArgs& args) {
    SHARED(DepthwiseShared<T>, shared);
    const int thread = threadIdx.x, lanes = 1 << args.gy.shift, apart = DEPTHWISE_THREADS / lanes;
    const int c = (blockIdx.x << args.gy.shift) + thread % lanes, own = thread / lanes;
    const int taps = args.axes[0].kernel * args.axes[1].kernel;
    i64 begin, end;
    bounds(args, blockIdx.z, begin, end);
    const bool is_real = c < args.groups;
    for (int tap = blockIdx.y; tap < taps; tap += gridDim.y) {
        const i64 row_shift =
            static_cast<i64>(tap / args.axes[1].kernel) * args.axes[0].dilation - args.axes[0].padding;
        const i64 col_shift =
            static_cast<i64>(tap % args.axes[1].kernel) * args.axes[1].dilation - args.axes[1].padding;
        T sum = T(0);
        if (is_real && begin + own < end) {
            Cursor cursor(args.share, begin + own);
            for (i64 number = begin + own; number < end; number += apart) {
                const i64 y = args.share.row0 + cursor.row, x = args.share.col0 + cursor.col;
                const i64 from_y = y * args.axes[0].stride + row_shift, from_x = x * args.axes[1].stride + col_shift;
                if (from_y >= 0 && from_y < args.axes[0].input && from_x >= 0 && from_x < args.axes[1].input) {
                    sum = multiply_add(element<T>(args.gy, cursor.n, c, y, x),
                                       element<T>(args.x, cursor.n, c, from_y, from_x), sum);
                }
                if (number + apart < end) cursor.advance(args.share, apart);
            }
        }
        shared.sums[thread] = sum;
        __syncthreads();
        for (int half = DEPTHWISE_THREADS / 2; half >= lanes; half /= 2) {
            if (thread < half) shared.sums[thread] += shared.sums[thread + half];
            __syncthreads();
        }
        if (thread < lanes && is_real) {
            static_cast<T*>(args.scratch)[(static_cast<i64>(blockIdx.z) * args.groups + c) * taps + tap] =
                shared.sums[thread];
        }
        __syncthreads();
    }
}

KERNEL(weights_dense_f32_128, WeightArgs, 128, 4) { weights<float, LANES, Chains<float, 128, 64, 8, 8>>(args); }
KERNEL(weights_dense_f32_64, WeightArgs, 64, 8) { weights<float, LANES, Chains<float, 64, 64, 8, 8>>(args); }
KERNEL(weights_dense_f32_32, WeightArgs, 32, 12) { weights<float, LANES, Chains<float, 32, 64, 8, 8>>(args); }
KERNEL(weights_dense_f64_32, WeightArgs, 64) { weights<double, LANES, Chains<double, 32, 32, 4, 4>>(args); }
KERNEL(weights_gather_f32_64, WeightArgs, 64) { weights<float, 1, Chains<float, 64, 32, 8, 4>>(args); }
KERNEL(weights_gather_f32_32, WeightArgs, 32) { weights<float, 1, Chains<float, 32, 32, 8, 4>>(args); }
KERNEL(weights_gather_f32_16, WeightArgs, 64) { weights<float, 1, Chains<float, 16, 64, 4, 4>>(args); }
KERNEL(weights_gather_f64_32, WeightArgs, 64) { weights<double, 1, Chains<double, 32, 32, 4, 4>>(args); }
KERNEL(weights_gather_f64_16, WeightArgs, 64) { weights<double, 1, Chains<double, 16, 64, 4, 4>>(args); }
KERNEL(weights_depthwise_f32, WeightArgs, 256) { weights_depthwise<float>(args); }
KERNEL(weights_depthwise_f64, WeightArgs, 256) { weights_depthwise<double>(args); }

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
