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
    int tile_cols;        // of the rectangle of a block of threads where each has all outputs
    int unused;
};

// A pixel of a window, by its channels.
template <typename T>
struct Pixel {
    T* first;
    i64 block_stride;
    int shift;
    DEVICE Pixel(const View& view, int n, i64 y, i64 x)
        : first(pixel<T>(view, n, 0, y, x)), block_stride(view.block_stride), shift(view.shift) {}
    DEVICE T& operator[](int c) const { return first[(c >> shift) * block_stride + (c & ((1 << shift) - 1))]; }
};

// Some output channels of a group, whose first is a multiple of them: together where they lie so. Those past the last one of the group
// are no channels, though a block may end with lanes for them.
struct Channels {
    int group, first;
    bool is_whole;
    template <int N>
    DEVICE static Channels of(const ConvArgs& args, int group, int first) {
        return {group, first, N > 1 && args.out.shift > 0 && args.groups == 1};
    }
};

// How many lanes of a pixel are read and written at a time.
template <int N>
constexpr int TOGETHER = N < LANES ? N : LANES;

// Calls `f` with each of these channels of a window and its number among them: with what lies together at a time, else with one.
template <typename T, int N, typename Whole, typename Each>
DEVICE void for_channels(const ConvArgs& args, const Channels& channels, const Pixel<T>& of, Whole whole, Each each) {
    if (channels.is_whole) {
#pragma unroll
        for (int j = 0; j < N; j += TOGETHER<N>) {
            if (channels.first + j < args.outputs) whole(j, reinterpret_cast<Vec<T, TOGETHER<N>>&>(of[channels.first + j]));
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const int c = channels.first + j;
        if (c < args.outputs) each(j, of[channels.group * args.outputs + c]);
    }
}

template <typename T, int N>
DEVICE void read_channels(const ConvArgs& args, const Channels& channels, const View& view, int n, i64 y, i64 x, T (&to)[N]) {
    typedef Vec<T, TOGETHER<N>> Lanes;
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = T(0);
    for_channels<T, N>(
        args, channels, Pixel<T>(view, n, y, x),
        [&](int j, const Lanes& lanes) {
#pragma unroll
            for (int lane = 0; lane < TOGETHER<N>; ++lane) to[j + lane] = lanes.at[lane];
        },
        [&](int j, T value) { to[j] = value; });
}

// Writes some lanes of a pixel, after what follows their sums, each step as a kernel of its own would round it.
template <typename T, int N>
DEVICE void finish(const ConvArgs& args, const T (&sums)[N], int n, i64 y, i64 x, int group, int first) {
    typedef Vec<T, TOGETHER<N>> Lanes;
    const Channels channels = Channels::of<N>(args, group, first);
    T values[N], others[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = sums[j];
    if (args.affine != nullptr) {
        const T* factors = static_cast<const T*>(args.affine) + group * args.outputs;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const int c = first + j < args.outputs ? first + j : 0;
            values[j] = multiply_add(values[j], factors[c], factors[args.affine_len + c]);
        }
    }
    if (args.sums != 0) {
        read_channels(args, channels, args.added, n, y, x, others);
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] += others[j];
    }
    if (args.activation == 1) {
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] = values[j] <= T(0) ? T(0) : values[j];
    } else if (args.activation == 2) {
#pragma unroll
        for (int j = 0; j < N; ++j) values[j] = values[j] > T(0) ? values[j] : values[j] * static_cast<T>(args.slope);
    }
    if (args.mask != 0) {
        read_channels(args, channels, args.saved, n, y, x, others);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            if (args.mask == 1) {
                values[j] = others[j] <= T(0) ? T(0) : values[j];
            } else {
                values[j] = others[j] > T(0) ? values[j] : values[j] * static_cast<T>(args.mask_slope);
            }
        }
    }
    for_channels<T, N>(
        args, channels, Pixel<T>(args.out, n, y, x),
        [&](int j, Lanes& to) {
            Lanes lanes;
#pragma unroll
            for (int lane = 0; lane < TOGETHER<N>; ++lane) lanes.at[lane] = values[j + lane];
            to = lanes;
        },
        [&](int j, T& to) { to = values[j]; });
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
    // a division of half as many bits takes a tenth of the instructions
    if (number >> 31 == 0 && plane >> 31 == 0) {
        const unsigned own = static_cast<unsigned>(number), of_image = static_cast<unsigned>(plane), cols = part.cols;
        const unsigned n = own / of_image, rest = own - n * of_image, row = rest / cols;
        return {static_cast<int>(n), static_cast<int>(row), static_cast<int>(rest - row * cols)};
    }
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

// How a block of threads shares out its tile: PIXELS by OUTPUTS, of which a thread has OWN_PIXELS by OWN_OUTPUTS. Its outputs lie
// together, and its pixels as many together as are loaded at a time, the next so many further on. A warp has eight such groups of pixels
// by four of outputs where there are as many: neighbours share their pixels, and those two apart their outputs, so that loads from shared
// memory are merged.
template <int PIXELS, int OUTPUTS, int OWN_PIXELS, int OWN_OUTPUTS>
struct Tiling {
    static constexpr int ACROSS = PIXELS / OWN_PIXELS, ALONG = OUTPUTS / OWN_OUTPUTS;
    static constexpr int THREADS = ACROSS * ALONG;
    static constexpr int TOGETHER = OWN_PIXELS < LANES ? OWN_PIXELS : LANES, APART = ACROSS * TOGETHER;
    static constexpr int WARP_ALONG = ALONG < 4 ? ALONG : 4, WARP_ACROSS = 32 / WARP_ALONG, NEIGHBOURS = WARP_ALONG < 2 ? 1 : 2;
    static DEVICE int pixel_of(int thread) {
        return (thread % 32 / NEIGHBOURS % WARP_ACROSS + thread / 32 % (ACROSS / WARP_ACROSS) * WARP_ACROSS) * TOGETHER;
    }
    static DEVICE int output_of(int thread) {
        const int in_warp = thread % NEIGHBOURS + thread % 32 / (NEIGHBOURS * WARP_ACROSS) * NEIGHBOURS;
        return (in_warp + thread / 32 / (ACROSS / WARP_ACROSS) * WARP_ALONG) * OWN_OUTPUTS;
    }
};

// Channels of a step: a block of the windows.
constexpr int STEP = 8;
constexpr int VECTORS = STEP / LANES;

// Where no column is, nor one that taps lead to from there.
constexpr int BEYOND = 3 << 29;

template <typename T, int PIXELS, int OUTPUTS>
struct DenseShared {
    alignas(16) T in[2][STEP][PIXELS + LANES];  // rows begin in different banks
    Vec<T, LANES> weights[2][STEP][OUTPUTS / LANES];
};

// The sums of a thread: of each output one chain of multiply-adds.
template <typename T, int PIXELS, int OUTPUTS, int OWN_PIXELS, int OWN_OUTPUTS>
struct Chains {
    typedef Tiling<PIXELS, OUTPUTS, OWN_PIXELS, OWN_OUTPUTS> Of;
    int own_pixel, own_output;
    T sums[OWN_PIXELS][OWN_OUTPUTS];

    DEVICE void begin(const ConvArgs& args, int thread, int group, int first_output) {
        own_pixel = Of::pixel_of(thread), own_output = Of::output_of(thread);
#pragma unroll
        for (int j = 0; j < OWN_OUTPUTS; ++j) {
            const T bias = bias_of<T>(args, group, first_output + own_output + j);
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) sums[i][j] = bias;
        }
    }

    DEVICE void add(const DenseShared<T, PIXELS, OUTPUTS>& shared, int stage) {
        constexpr int TOGETHER = Of::TOGETHER;
#pragma unroll
        for (int channel = 0; channel < STEP; ++channel) {
            Vec<T, TOGETHER> in[OWN_PIXELS / TOGETHER];
            Vec<T, LANES> weight[OWN_OUTPUTS / LANES];
#pragma unroll
            for (int i = 0; i < OWN_PIXELS / TOGETHER; ++i) {
                in[i] = *reinterpret_cast<const Vec<T, TOGETHER>*>(&shared.in[stage][channel][own_pixel + i * Of::APART]);
            }
#pragma unroll
            for (int j = 0; j < OWN_OUTPUTS / LANES; ++j) weight[j] = shared.weights[stage][channel][own_output / LANES + j];
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) {
#pragma unroll
                for (int j = 0; j < OWN_OUTPUTS; ++j) {
                    sums[i][j] = multiply_add(in[i / TOGETHER].at[i % TOGETHER], weight[j / LANES].at[j % LANES], sums[i][j]);
                }
            }
        }
    }

    // Some lanes of a pixel after the others by the same instructions, to which the sums of the next ones move up: written out for each
    // they would not fit the cache of instructions.
    DEVICE void write(const ConvArgs& args, i64 first_pixel, i64 pixels, int group, int first_output) {
        constexpr int PARTS = OWN_OUTPUTS / LANES;
#pragma unroll 1
        for (int part = 0; part < OWN_PIXELS * PARTS; ++part) {
            const int i = part / PARTS;
            const i64 number = first_pixel + own_pixel + i % Of::TOGETHER + i / Of::TOGETHER * Of::APART;
            if (number >= pixels) break;
            T own[LANES];
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) own[lane] = sums[0][lane];
            write_pixel<T, LANES>(args, own, number, group, first_output + own_output + part % PARTS * LANES);
#pragma unroll
            for (int at = LANES; at < OWN_PIXELS * OWN_OUTPUTS; ++at) {
                const int to = at - LANES;
                sums[to / OWN_OUTPUTS][to % OWN_OUTPUTS] = sums[at / OWN_OUTPUTS][at % OWN_OUTPUTS];
            }
        }
    }
};

// Where the channels that are summed over lie in blocks. A step is a block of a tap: while its terms are added, what the next one reads
// is on its way, inputs through registers, as in shared memory the pixels of a channel lie together, and weights by asynchronous copies.
template <typename T, int PIXELS, int OUTPUTS, int OWN_PIXELS, int OWN_OUTPUTS>
DEVICE void dense(const ConvArgs& args) {
    typedef Chains<T, PIXELS, OUTPUTS, OWN_PIXELS, OWN_OUTPUTS> Sums;
    typedef DenseShared<T, PIXELS, OUTPUTS> Shared;
    constexpr int THREADS = Sums::Of::THREADS;
    constexpr int LOADS = PIXELS * VECTORS / THREADS, LOADS_APART = THREADS / VECTORS;
    constexpr int WEIGHT_LANES = OUTPUTS / LANES, WEIGHT_COPIES = STEP * WEIGHT_LANES;
    constexpr int OWN_WEIGHTS = (WEIGHT_COPIES + THREADS - 1) / THREADS, WEIGHTS_APART = THREADS / WEIGHT_LANES;
    static_assert(PIXELS * VECTORS % THREADS == 0 && THREADS % VECTORS == 0, "each thread loads as much");
    static_assert(WEIGHT_COPIES <= THREADS || WEIGHT_COPIES % THREADS == 0, "each thread copies as many of the weights");
    SHARED(Shared, shared);
    const int thread = threadIdx.x, group = blockIdx.z, first_output = blockIdx.y * OUTPUTS;
    const i64 first_pixel = static_cast<i64>(blockIdx.x) * PIXELS;
    const i64 pixels = static_cast<i64>(args.part.images) * args.part.rows * args.part.cols;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    // this thread loads lanes `half` of a channel block, of the pixels `own` and so on; of the weights it copies lanes `weight_lane` of
    // channel `weight_channel` and so on
    const int own = thread / VECTORS, half = thread % VECTORS;
    const int weight_channel = thread / WEIGHT_LANES, weight_lane = thread % WEIGHT_LANES;
    const bool copies_weights = WEIGHT_COPIES >= THREADS || thread < WEIGHT_COPIES;
    const bool weight_valid = first_output + weight_lane * LANES < args.outputs_padded;
    const int blocks = args.reduced_padded / STEP, steps = rows.taps * cols.taps * blocks;

    // of the step that is loaded next: the tap, the block, and what this thread loads of it
    int u = -1, v = cols.taps - 1, block = blocks - 1;
    const T *from[LOADS], *weights_from = nullptr;
    int x[LOADS];  // beyond all columns where the row is outside of the image
    auto locate = [&]() {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const i64 number = first_pixel + own + i * LOADS_APART;
            const Place place = place_of(args.part, number < pixels ? number : pixels - 1);
            const int y = rows.base + place.row * rows.stride + u * rows.step;
            const int col = cols.base + place.col * cols.stride;
            int slot = args.in.first + y;
            if (slot >= args.in.ring) slot -= args.in.ring;
            const T* image = static_cast<const T*>(args.in.data) + place.n * args.in.batch_stride;
            const T* row = image + (group * args.reduced >> args.in.shift) * args.in.block_stride + slot * args.in.row_stride;
            from[i] = row + (col * STEP + half * LANES);
            x[i] = y >= rows.low && y < rows.high ? col : BEYOND;
        }
        const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first;
        weights_from = static_cast<const T*>(args.weights) +
                       ((static_cast<i64>(group) * args.kernel_taps + tap) * args.reduced_padded + weight_channel) * args.outputs_padded +
                       (weight_valid ? first_output + weight_lane * LANES : 0);
    };
    // from the end of a tap to the one beside it
    const i64 to_next = cols.step * STEP - blocks * args.in.block_stride;
    const i64 weights_to_next = static_cast<i64>(cols.next - 1) * args.reduced_padded * args.outputs_padded;
    Vec<T, LANES> loaded[LOADS];
    auto load = [&](int stage) {
        if (++block == blocks) {
            block = 0;
            if (++v == cols.taps) {
                v = 0;
                ++u;
                locate();
            } else {
#pragma unroll
                for (int i = 0; i < LOADS; ++i) {
                    from[i] += to_next;
                    x[i] += cols.step;
                }
                weights_from += weights_to_next;
            }
        }
        const int left = args.reduced - block * STEP - half * LANES;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const bool is_inside = x[i] >= cols.low && x[i] < cols.high;
            if (is_inside && left >= LANES) {
                loaded[i] = lanes_at(from[i]);
            } else {
#pragma unroll
                for (int lane = 0; lane < LANES; ++lane) loaded[i].at[lane] = is_inside && lane < left ? from[i][lane] : T(0);
            }
            from[i] += args.in.block_stride;
        }
#pragma unroll
        for (int i = 0; i < OWN_WEIGHTS; ++i) {
            if (!copies_weights) break;
            copy_lanes<LANES>(&shared.weights[stage][weight_channel + i * WEIGHTS_APART][weight_lane].at[0],
                              weights_from + static_cast<i64>(i * WEIGHTS_APART) * args.outputs_padded, weight_valid);
        }
        copy_async_commit();
        weights_from += static_cast<i64>(STEP) * args.outputs_padded;
    };
    auto store = [&](int stage) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
#pragma unroll
            for (int lane = 0; lane < LANES; ++lane) {
                shared.in[stage][half * LANES + lane][own + i * LOADS_APART] = loaded[i].at[lane];
            }
        }
    };

    Sums sums;
    sums.begin(args, thread, group, first_output);
    int stage = 1;
    // one step more than there are: the first one only loads
#pragma unroll 1
    for (int to_come = steps; to_come >= 0; --to_come) {
        if (to_come > 0) load(1 - stage);
        if (to_come < steps) sums.add(shared, stage);
        stage = 1 - stage;
        if (to_come > 0) store(stage);
        copy_async_wait<0>();
        // all have stored what the next step reads, and none reads the stage of this one any more
        __syncthreads();
    }
    sums.write(args, first_pixel, pixels, group, first_output);
}
