// Gradients of weights: the pixels of a share are cut into a number of parts that the convolution's geometry fixes, each part is summed
// in the order of its pixels into scratch memory, and the parts are added in order.
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
    void* scratch;  // [split][output][input][tap]
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

constexpr int STAGES = 3;
constexpr int STEP = 8;

DEVICE void bounds(const WeightArgs& args, int split, i64& begin, i64& end) {
    const i64 pixels = static_cast<i64>(args.share.images) * args.share.rows * args.share.cols;
    begin = pixels * split / args.splits;
    end = pixels * (split + 1) / args.splits;
}

template <typename T, int OUTPUTS, int INPUTS>
struct WeightShared {
    Vec<T, LANES> gy[STAGES][STEP][OUTPUTS / LANES + 1], x[STAGES][STEP][INPUTS / LANES + 1];
};

// A tile of output channels by input channels, at one tap, where both lie in whole blocks.
template <typename T, int OUTPUTS, int INPUTS, int OWN_OUTPUTS, int OWN_INPUTS>
DEVICE void weights_dense(const WeightArgs& args) {
    typedef WeightShared<T, OUTPUTS, INPUTS> Shared;
    constexpr int ALONG = INPUTS / OWN_INPUTS, THREADS = OUTPUTS / OWN_OUTPUTS * ALONG;
    constexpr int GY_COPIES = STEP * OUTPUTS / LANES / THREADS, X_COPIES = STEP * INPUTS / LANES / THREADS;
    constexpr int HALVES = 8 / LANES;
    static_assert(STEP * OUTPUTS / LANES % THREADS == 0 && STEP * INPUTS / LANES % THREADS == 0, "copies are shared evenly");
    SHARED(Shared, shared);
    const int thread = threadIdx.x;
    const int input_tiles = (args.inputs + INPUTS - 1) / INPUTS, output_tiles = (args.outputs + OUTPUTS - 1) / OUTPUTS;
    const int group = blockIdx.x / (input_tiles * output_tiles);
    const int tile = blockIdx.x % (input_tiles * output_tiles);
    const int first_output = tile / input_tiles * OUTPUTS, first_input = tile % input_tiles * INPUTS;
    const int taps = args.axes[0].kernel * args.axes[1].kernel, tap = blockIdx.y;
    const i64 row_shift = static_cast<i64>(tap / args.axes[1].kernel) * args.axes[0].dilation - args.axes[0].padding;
    const i64 col_shift = static_cast<i64>(tap % args.axes[1].kernel) * args.axes[1].dilation - args.axes[1].padding;
    i64 begin, end;
    bounds(args, blockIdx.z, begin, end);

    // this thread copies lanes `half` of the pixel `own` of each step
    const int half = thread % HALVES, own = thread / HALVES % STEP, first_block = thread / (HALVES * STEP);
    constexpr int APART = THREADS / (HALVES * STEP);
    Cursor cursor(args.share, begin + own < end ? begin + own : begin);
    i64 number = begin + own;
    auto copy = [&](int stage) {
        const bool is_real = number < end;
        const i64 y = args.share.row0 + cursor.row, x = args.share.col0 + cursor.col;
        const i64 from_y = y * args.axes[0].stride + row_shift, from_x = x * args.axes[1].stride + col_shift;
        const bool is_inside = is_real && from_y >= 0 && from_y < args.axes[0].input && from_x >= 0 &&
                               from_x < args.axes[1].input;
        auto lanes = [&](const View& view, int channels, int group_channels, int first, int block, bool is_there, i64 row,
                         i64 col, Vec<T, LANES>* to) {
            const int c = first + block * 8 + half * LANES, left = channels - c;
            const int valid = !is_there || left < 0 ? 0 : left > LANES ? LANES : left;
            const T* from = valid > 0 ? pixel<T>(view, cursor.n, (group * group_channels + c) >> 3, row, col) + half * LANES
                                      : static_cast<const T*>(view.data);
#pragma unroll
            for (int part = 0; part < static_cast<int>(sizeof(*to) / 16); ++part) {
                constexpr int each = 16 / sizeof(T);
                int count = valid - part * each;
                count = count < 0 ? 0 : count > each ? each : count;
                copy_async_16(reinterpret_cast<char*>(to) + part * 16, count > 0 ? from + part * each : from,
                              count * static_cast<int>(sizeof(T)));
            }
        };
#pragma unroll
        for (int i = 0; i < GY_COPIES; ++i) {
            const int block = first_block + i * APART;
            lanes(args.gy, args.outputs, args.outputs, first_output, block, is_real, y, x,
                  &shared.gy[stage][own][block * HALVES + half]);
        }
#pragma unroll
        for (int i = 0; i < X_COPIES; ++i) {
            const int block = first_block + i * APART;
            lanes(args.x, args.inputs, args.inputs, first_input, block, is_inside, from_y, from_x,
                  &shared.x[stage][own][block * HALVES + half]);
        }
        number += STEP;
        if (number < end) cursor.advance(args.share, STEP);
    };

    const int own_input = thread % ALONG, own_output = thread / ALONG;
    T sums[OWN_OUTPUTS][OWN_INPUTS];
#pragma unroll
    for (int i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
        for (int j = 0; j < OWN_INPUTS; ++j) sums[i][j] = T(0);
    }
    const i64 steps = (end - begin + STEP - 1) / STEP;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) copy(stage);
        copy_async_commit();
    }
    int stage = 0;
    for (i64 step = 0; step < steps; ++step) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        const int next = stage == 0 ? STAGES - 1 : stage - 1;
        if (step + STAGES - 1 < steps) copy(next);
        copy_async_commit();
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            Vec<T, LANES> gy[OWN_OUTPUTS / LANES], x[OWN_INPUTS / LANES];
#pragma unroll
            for (int i = 0; i < OWN_OUTPUTS / LANES; ++i) {
                gy[i] = shared.gy[stage][k][own_output * (OWN_OUTPUTS / LANES) + i];
            }
#pragma unroll
            for (int j = 0; j < OWN_INPUTS / LANES; ++j) {
                x[j] = shared.x[stage][k][own_input * (OWN_INPUTS / LANES) + j];
            }
#pragma unroll
            for (int i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
                for (int j = 0; j < OWN_INPUTS; ++j) {
                    sums[i][j] = multiply_add(gy[i / LANES].at[i % LANES], x[j / LANES].at[j % LANES], sums[i][j]);
                }
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    copy_async_wait<0>();

    T* scratch = static_cast<T*>(args.scratch) +
                 static_cast<i64>(blockIdx.z) * args.groups * args.outputs * args.inputs * taps;
#pragma unroll
    for (int i = 0; i < OWN_OUTPUTS; ++i) {
        const int o = first_output + own_output * OWN_OUTPUTS + i;
#pragma unroll
        for (int j = 0; j < OWN_INPUTS; ++j) {
            const int c = first_input + own_input * OWN_INPUTS + j;
            if (o < args.outputs && c < args.inputs) {
                scratch[(static_cast<i64>(group * args.outputs + o) * args.inputs + c) * taps + tap] = sums[i][j];
            }
        }
    }
}

template <typename T, int OUTPUTS, int TERMS>
struct GatheredShared {
    T gy[STEP][OUTPUTS], x[STEP][TERMS];
};

// A tile of output channels by taps and input channels in one row, gathered one by one: few channels, or groups that cut blocks.
template <typename T, int OUTPUTS, int TERMS, int OWN_OUTPUTS, int OWN_TERMS>
DEVICE void weights_gather(const WeightArgs& args) {
    typedef GatheredShared<T, OUTPUTS, TERMS> Shared;
    constexpr int ALONG = TERMS / OWN_TERMS, THREADS = OUTPUTS / OWN_OUTPUTS * ALONG;
    constexpr int GY_LOADS = STEP * OUTPUTS / THREADS, X_LOADS = STEP * TERMS / THREADS;
    static_assert(STEP * OUTPUTS % THREADS == 0 && STEP * TERMS % THREADS == 0, "loads are shared evenly");
    SHARED(Shared, shared);
    const int thread = threadIdx.x;
    const int taps = args.axes[0].kernel * args.axes[1].kernel, terms = taps * args.inputs;
    const int term_tiles = (terms + TERMS - 1) / TERMS, output_tiles = (args.outputs + OUTPUTS - 1) / OUTPUTS;
    const int group = blockIdx.x / (term_tiles * output_tiles), tile = blockIdx.x % (term_tiles * output_tiles);
    const int first_output = tile / term_tiles * OUTPUTS, first_term = tile % term_tiles * TERMS;
    i64 begin, end;
    bounds(args, blockIdx.z, begin, end);

    const int own = thread % STEP;
    int channel[X_LOADS];
    i64 row_shift[X_LOADS], col_shift[X_LOADS];
#pragma unroll
    for (int i = 0; i < X_LOADS; ++i) {
        const int term = first_term + thread / STEP + i * (THREADS / STEP);
        const int tap = term / args.inputs;
        channel[i] = term < terms ? group * args.inputs + term % args.inputs : -1;
        row_shift[i] = static_cast<i64>(tap / args.axes[1].kernel) * args.axes[0].dilation - args.axes[0].padding;
        col_shift[i] = static_cast<i64>(tap % args.axes[1].kernel) * args.axes[1].dilation - args.axes[1].padding;
    }
    Cursor cursor(args.share, begin + own < end ? begin + own : begin);
    const int own_term = thread % ALONG, own_output = thread / ALONG;
    T sums[OWN_OUTPUTS][OWN_TERMS];
#pragma unroll
    for (int i = 0; i < OWN_OUTPUTS; ++i) {
#pragma unroll
        for (int j = 0; j < OWN_TERMS; ++j) sums[i][j] = T(0);
    }
    for (i64 first = begin; first < end; first += STEP) {
        const bool is_real = first + own < end;
        const i64 y = args.share.row0 + cursor.row, x = args.share.col0 + cursor.col;
#pragma unroll
        for (int i = 0; i < GY_LOADS; ++i) {
            const int o = first_output + thread / STEP + i * (THREADS / STEP);
            shared.gy[own][o - first_output] =
                is_real && o < args.outputs ? element<T>(args.gy, cursor.n, group * args.outputs + o, y, x) : T(0);
        }
#pragma unroll
        for (int i = 0; i < X_LOADS; ++i) {
            const i64 from_y = y * args.axes[0].stride + row_shift[i], from_x = x * args.axes[1].stride + col_shift[i];
            const bool is_inside = is_real && channel[i] >= 0 && from_y >= 0 && from_y < args.axes[0].input &&
                                   from_x >= 0 && from_x < args.axes[1].input;
            shared.x[own][thread / STEP + i * (THREADS / STEP)] =
                is_inside ? element<T>(args.x, cursor.n, channel[i], from_y, from_x) : T(0);
        }
        if (first + own + STEP < end) cursor.advance(args.share, STEP);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
#pragma unroll
            for (int i = 0; i < OWN_OUTPUTS; ++i) {
                const T gy = shared.gy[k][own_output * OWN_OUTPUTS + i];
#pragma unroll
                for (int j = 0; j < OWN_TERMS; ++j) {
                    sums[i][j] = multiply_add(gy, shared.x[k][own_term + j * ALONG], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
    T* scratch = static_cast<T*>(args.scratch) + static_cast<i64>(blockIdx.z) * args.groups * args.outputs * terms;
#pragma unroll
    for (int i = 0; i < OWN_OUTPUTS; ++i) {
        const int o = first_output + own_output * OWN_OUTPUTS + i;
#pragma unroll
        for (int j = 0; j < OWN_TERMS; ++j) {
            const int term = first_term + own_term + j * ALONG;
            if (o < args.outputs && term < terms) {
                const i64 row = static_cast<i64>(group * args.outputs + o) * args.inputs + term % args.inputs;
                scratch[row * taps + term / args.inputs] = sums[i][j];
            }
        }
    }
}

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

KERNEL(weights_dense_f32_64, WeightArgs, 128) { weights_dense<float, 64, 64, 8, 4>(args); }
KERNEL(weights_dense_f32_32, WeightArgs, 64) { weights_dense<float, 32, 32, 4, 4>(args); }
KERNEL(weights_dense_f64_32, WeightArgs, 64) { weights_dense<double, 32, 32, 4, 4>(args); }
KERNEL(weights_gather_f32, WeightArgs, 128) { weights_gather<float, 32, 64, 4, 4>(args); }
KERNEL(weights_gather_f64, WeightArgs, 128) { weights_gather<double, 32, 64, 4, 4>(args); }
KERNEL(weights_depthwise_f32, WeightArgs, 256) { weights_depthwise<float>(args); }
KERNEL(weights_depthwise_f64, WeightArgs, 256) { weights_depthwise<double>(args); }

struct AddArgs {
    void* to;
    const void* from;  // [part][value]
    i64 values;
    int parts, unused;
};

// `to += from[0] + …`: the parts in order, then what was there.
template <typename T>
DEVICE void add_parts(const AddArgs& args) {
    const T* from = static_cast<const T*>(args.from);
    const i64 all = static_cast<i64>(gridDim.x) * blockDim.x;
    for (i64 at = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; at < args.values; at += all) {
        T sum = from[at];
        for (int part = 1; part < args.parts; ++part) sum += from[part * args.values + at];
        static_cast<T*>(args.to)[at] += sum;
    }
}

KERNEL(add_parts_f32, AddArgs, 256) { add_parts<float>(args); }
KERNEL(add_parts_f64, AddArgs, 256) { add_parts<double>(args); }
