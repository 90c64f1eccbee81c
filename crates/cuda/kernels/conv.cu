// Convolution and the gradient for its input by multiply-adds. An output is one chain of them in the order tap, channel, in every
// kernel here, so that neither the tile nor the kernel shows in its bits.
#include "dense.cuh"
#include "write.cuh"

// A tile of a gathering kernel: a thread has half a block of channels in some blocks, and every sixteenth pixel of those of its warp,
// so that what a warp writes at a time lies together.
template <typename T, int TILE_PIXELS, int TILE_OUTPUTS, int PIXELS_OF_THREAD, int BLOCKS_OF_THREAD>
struct GatherTile {
    static constexpr int PIXELS = TILE_PIXELS, OUTPUTS = TILE_OUTPUTS;
    static constexpr int OWN_PIXELS = PIXELS_OF_THREAD, OWN_BLOCKS = BLOCKS_OF_THREAD;
    static constexpr int WARP_PIXELS = 16 * OWN_PIXELS, ACROSS = PIXELS / WARP_PIXELS;
    static constexpr int THREADS = 32 * ACROSS * (OUTPUTS / 8 / OWN_BLOCKS);
    static constexpr int TERMS = 16;  // of a step
    struct Shared {
        Vec<T, LANES> in[2][TERMS][PIXELS / LANES], weights[2][TERMS][OUTPUTS / LANES];
        i64 places[3][PIXELS];  // in the windows that are written, added and saved
    };
    // The pixels that a thread reads together lie sixteen apart.
    static DEVICE int cell_of(int pixel) { return pixel / 64 * 64 + pixel % 16 * LANES + pixel / 16 % LANES; }
};

// Where the channels that are summed over are few, or begin within a block: a product of matrices as the dense kernels, of which each
// thread copies the terms of some pixels one by one.
template <typename T, typename Tile>
DEVICE void gather(const ConvArgs& args) {
    constexpr int PIXELS = Tile::PIXELS, OUTPUTS = Tile::OUTPUTS, THREADS = Tile::THREADS, TERMS = Tile::TERMS;
    constexpr int OWN_PIXELS = Tile::OWN_PIXELS, OWN_BLOCKS = Tile::OWN_BLOCKS, COPIES = PIXELS / THREADS;
    static_assert(PIXELS % THREADS == 0 && OUTPUTS / LANES <= THREADS, "each thread copies as many pixels");
    typedef typename Tile::Shared Shared;
    SHARED(Shared, shared);
    const int thread = threadIdx.x, group = blockIdx.z, first_output = blockIdx.y * OUTPUTS, first_channel = group * args.reduced;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    const i64 pixels = static_cast<i64>(args.part.images) * args.part.rows * args.part.cols;

    // the pixels whose terms this thread copies
    const T *image[COPIES], *in_row[COPIES];
    int row[COPIES], col[COPIES];
    bool is_row[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        const int own = thread + i * THREADS;
        const i64 number = static_cast<i64>(blockIdx.x) * PIXELS + own;
        const Place place = place_of(args.part, number < pixels ? number : pixels - 1);
        const auto place_in = [&](const View& view) {
            return number < pixels ? Column(view, place.n, y_of(args, place.row), x_of(args, place.col), 0)(0) : -1;
        };
        shared.places[0][own] = place_in(args.out);
        if (args.sums != 0) shared.places[1][own] = place_in(args.added);
        if (args.mask != 0) shared.places[2][own] = place_in(args.saved);
        image[i] = static_cast<const T*>(args.in.data) + place.n * args.in.batch_stride;
        row[i] = rows.base + place.row * rows.stride;
        col[i] = cols.base + place.col * cols.stride;
    }
    const T* weights = static_cast<const T*>(args.weights) + first_output +
                       static_cast<i64>(group) * args.kernel_taps * args.reduced_padded * args.outputs_padded;

    // A step is some taps with all channels, or some channels of a tap; what is copied next.
    int u = 0, v = 0, c = 0, first_term = 0;
    i64 of_c = of_channel(args.in, first_channel);
    const int mask = (1 << args.in.shift) - 1;
    // the terms of a class that has all taps are the rows of the weights
    const bool is_whole = rows.taps * cols.taps == args.kernel_taps;
    const i64 to_next_block = (args.in.block_stride - mask) * static_cast<i64>(sizeof(T));
    const auto copy = [&](int stage) {
        int count = 0;
        while (u < rows.taps) {
            const int channels = args.reduced - c < TERMS ? args.reduced - c : TERMS;
            if (count + channels > TERMS) break;
            if (v == 0 && c == 0) {
#pragma unroll
                for (int i = 0; i < COPIES; ++i) {
                    const int y = row[i] + u * rows.step;
                    is_row[i] = y >= rows.low && y < rows.high;
                    int slot = args.in.first + y;
                    if (slot >= args.in.ring) slot -= args.in.ring;
                    in_row[i] = image[i] + slot * args.in.row_stride;
                }
            }
            const char* from[COPIES];
            bool is_inside[COPIES];
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                const int x = col[i] + v * cols.step;
                is_inside[i] = is_row[i] && x >= cols.low && x < cols.high;
                from[i] = reinterpret_cast<const char*>(in_row[i] + of_pixels(x, args.in.shift) + of_c);
            }
            T* to = &shared.in[stage][count][0].at[0];
            const auto copy_channel = [&](int k, i64 apart) {
#pragma unroll
                for (int i = 0; i < COPIES; ++i) {
                    copy_async_small<sizeof(T)>(to + k * PIXELS + Tile::cell_of(thread + i * THREADS),
                                                reinterpret_cast<const T*>(from[i]), is_inside[i]);
                    from[i] += apart;
                }
            };
            if (mask == 0) {
                // windows without blocks have at most four channels
#pragma unroll
                for (int k = 0; k < LANES; ++k) {
                    if (k < channels) copy_channel(k, to_next_block);
                }
            } else {
#pragma unroll 1
                for (int k = 0; k < channels; ++k) {
                    copy_channel(k, ((first_channel + c + k) & mask) == mask ? to_next_block : static_cast<i64>(sizeof(T)));
                }
            }
            count += channels;
            c += channels;
            if (c == args.reduced) c = 0;
            if (channels < args.reduced) of_c = of_channel(args.in, first_channel + c);
            if (c != 0) continue;
            if (++v < cols.taps) continue;
            v = 0;
            ++u;
        }
        for (int at = thread; at < count * (OUTPUTS / LANES); at += THREADS) {
            const int own = at / (OUTPUTS / LANES), lane = at % (OUTPUTS / LANES) * LANES;
            if (first_output + lane >= args.outputs_padded) continue;
            int row = first_term + own;
            if (!is_whole) {
                const int of_taps = row / args.reduced, of_rows = of_taps / cols.taps;
                const int of_cols = of_taps - of_rows * cols.taps;
                const int tap = (rows.first + of_rows * rows.next) * args.kernel_cols + cols.first + of_cols * cols.next;
                row += (tap - of_taps) * args.reduced;
            }
            const T* of_row = weights + static_cast<i64>(row) * args.outputs_padded;
            copy_lanes<LANES>(&shared.weights[stage][own][lane / LANES].at[0], of_row + lane, true);
        }
        first_term += count;
        copy_async_commit();
        return count;
    };

    const int warp = thread / 32, half = thread % 2, own_pixel = warp % Tile::ACROSS * Tile::WARP_PIXELS + thread % 32 / 2;
    const int own_vector = warp / Tile::ACROSS * OWN_BLOCKS * 2 + half;
    Vec<T, LANES> sums[OWN_PIXELS][OWN_BLOCKS];
#pragma unroll
    for (int b = 0; b < OWN_BLOCKS; ++b) {
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) {
            const T bias = bias_of<T>(args, group, first_output + (own_vector + 2 * b) * LANES + lane);
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) sums[i][b].at[lane] = bias;
        }
    }
    const auto add = [&](int stage, int terms) {
        const Vec<T, LANES>* cells = &shared.in[stage][0][Tile::cell_of(own_pixel) / LANES];
        const Vec<T, LANES>* weights = &shared.weights[stage][0][own_vector];
#pragma unroll 2
        for (int term = 0; term < terms; ++term) {
            Vec<T, LANES> in[OWN_PIXELS / LANES], weight[OWN_BLOCKS];
#pragma unroll
            for (int i = 0; i < OWN_PIXELS / LANES; ++i) in[i] = cells[i * 16];
#pragma unroll
            for (int b = 0; b < OWN_BLOCKS; ++b) weight[b] = weights[2 * b];
            cells += PIXELS / LANES;
            weights += OUTPUTS / LANES;
#pragma unroll
            for (int i = 0; i < OWN_PIXELS; ++i) {
#pragma unroll
                for (int b = 0; b < OWN_BLOCKS; ++b) {
#pragma unroll
                    for (int lane = 0; lane < LANES; ++lane) {
                        sums[i][b].at[lane] = multiply_add(in[i / LANES].at[i % LANES], weight[b].at[lane], sums[i][b].at[lane]);
                    }
                }
            }
        }
    };
    // a stage of so many terms is read while the next one is copied
    for (int step = 0, ready = 0, coming = 0;; ++step) {
        if (step >= 2) {
            if (ready == 0) break;
            copy_async_wait<1>();
            __syncthreads();
            add(step % 2, ready);
            // none reads the stage any more
            __syncthreads();
        }
        ready = coming;
        coming = cols.taps > 0 ? copy(step % 2) : 0;
    }
    copy_async_wait<0>();
    __syncthreads();
    write_all<T, LANES>(args, sums, group, first_output + own_vector * LANES, 2 * LANES, [&](int which, const View&) {
        return [&shared, which, own_pixel](int i) { return shared.places[which][own_pixel + i * 16]; };
    });
}

// A block of a pixel outside the image.
GLOBAL const Vec<double, 8> ZEROS = {};

// Few outputs of channels that lie in blocks: a thread has all outputs of some pixels, one below another. A block of threads has a
// rectangle of outputs whose inputs the cache holds for all taps.
template <typename T, int OUTPUTS, int OWN>
DEVICE void few(const ConvArgs& args) {
    constexpr int VECTORS_ALONG = OUTPUTS / LANES;
    const int tile_cols = args.tile_cols, tile_rows = blockDim.x / tile_cols * OWN;
    const int across = (args.part.cols + tile_cols - 1) / tile_cols, down = (args.part.rows + tile_rows - 1) / tile_rows;
    const int number = blockIdx.x, n = number / (across * down), tile_row = number / across - n * down;
    const int own_row = threadIdx.x / tile_cols;
    const int first_row = tile_row * tile_rows + own_row * OWN;
    const int col = (number - (n * down + tile_row) * across) * tile_cols + threadIdx.x - own_row * tile_cols;
    if (first_row >= args.part.rows || col >= args.part.cols) return;
    const int group = blockIdx.z, first_output = blockIdx.y * OUTPUTS, end_row = args.part.rows;
    const ConvAxis rows = args.axes[0], cols = args.axes[1];
    const int blocks = args.reduced / STEP, rest = args.reduced % STEP;
    const T* image = static_cast<const T*>(args.in.data) + n * args.in.batch_stride +
                     (group * args.reduced >> args.in.shift) * args.in.block_stride;
    const T* weights = static_cast<const T*>(args.weights) + first_output +
                       static_cast<i64>(group) * args.kernel_taps * args.reduced_padded * args.outputs_padded;
    Vec<T, LANES> sums[OWN][VECTORS_ALONG];
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) {
        const T bias = bias_of<T>(args, group, first_output + j);
#pragma unroll
        for (int i = 0; i < OWN; ++i) sums[i][j / LANES].at[j % LANES] = bias;
    }
    for (int u = 0; u < rows.taps; ++u) {
        for (int v = 0; v < cols.taps; ++v) {
            const int x = cols.base + col * cols.stride + v * cols.step;
            const T* from[OWN];
            i64 apart[OWN];
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                const int y = rows.base + (first_row + i) * rows.stride + u * rows.step;
                const bool is_inside = first_row + i < args.part.rows && y >= rows.low && y < rows.high && x >= cols.low && x < cols.high;
                int slot = args.in.first + y;
                if (slot >= args.in.ring) slot -= args.in.ring;
                from[i] = is_inside ? image + slot * args.in.row_stride + of_pixels(x, args.in.shift)
                                    : reinterpret_cast<const T*>(&ZEROS);
                apart[i] = is_inside ? args.in.block_stride : 0;
            }
            const int tap = (rows.first + u * rows.next) * args.kernel_cols + cols.first + v * cols.next;
            const T* weight_from = weights + static_cast<i64>(tap) * args.reduced_padded * args.outputs_padded;
            const auto add = [&](int lanes) {
                Vec<T, LANES> in[OWN][STEP / LANES];
#pragma unroll
                for (int i = 0; i < OWN; ++i) {
#pragma unroll
                    for (int k = 0; k < STEP / LANES; ++k) in[i][k] = lanes_at(from[i] + k * LANES);
                    from[i] += apart[i];
                }
#pragma unroll
                for (int k = 0; k < STEP; ++k) {
                    Vec<T, LANES> weight[VECTORS_ALONG];
#pragma unroll
                    for (int j = 0; j < VECTORS_ALONG; ++j) weight[j] = lanes_at(weight_from + j * LANES);
                    weight_from += args.outputs_padded;
#pragma unroll
                    for (int i = 0; i < OWN; ++i) {
                        const T own = k < lanes ? in[i][k / LANES].at[k % LANES] : T(0);
#pragma unroll
                        for (int j = 0; j < OUTPUTS; ++j) {
                            T& sum = sums[i][j / LANES].at[j % LANES];
                            sum = multiply_add(own, weight[j / LANES].at[j % LANES], sum);
                        }
                    }
                }
            };
#pragma unroll 1
            for (int block = 0; block < blocks; ++block) add(STEP);
            if (rest > 0) add(rest);
        }
    }
    write_all<T, LANES>(args, sums, group, first_output, LANES, [&](int, const View& view) {
        const Column column(view, n, y_of(args, first_row), x_of(args, col), args.step[0]);
        return [=](int i) { return first_row + i < end_row ? column(i) : -1; };
    });
}

KERNEL(dense_f32_128, ConvArgs, 256, BLOCKS_90(2, 1)) { dense<float, 128, 128, 8, 8>(args); }
KERNEL(dense_f32_64, ConvArgs, 128, BLOCKS_90(4, 3)) { dense<float, 128, 64, 8, 8>(args); }
KERNEL(dense_f32_64_64, ConvArgs, 64, BLOCKS_90(8, 6)) { dense<float, 64, 64, 8, 8>(args); }
KERNEL(dense_f32_32, ConvArgs, 128, 3) { dense<float, 256, 32, 8, 8>(args); }
KERNEL(dense_f64_64, ConvArgs, 128) { dense<double, 64, 64, 4, 8>(args); }
KERNEL(dense_f64_32, ConvArgs, 64) { dense<double, 64, 32, 4, 8>(args); }
KERNEL(dense_f64_8, ConvArgs, 64) { dense<double, 64, 8, 1, 8>(args); }

KERNEL(few_f32_8, ConvArgs, 128, 2) { few<float, 8, 4>(args); }
KERNEL(few_f32_4, ConvArgs, 128, 4) { few<float, 4, 2>(args); }

// For sm_80 the second tile takes more registers than four blocks of threads leave.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BLOCKS 3
#else
#define BLOCKS 4
#endif
KERNEL(gather_f32_64, ConvArgs, 128, 4) { gather<float, GatherTile<float, 128, 64, 8, 2>>(args); }
KERNEL(gather_f32_32, ConvArgs, 128, BLOCKS) { gather<float, GatherTile<float, 256, 32, 8, 2>>(args); }
KERNEL(gather_f32_8, ConvArgs, 64) { gather<float, GatherTile<float, 256, 8, 8, 1>>(args); }
KERNEL(gather_f64_32, ConvArgs, 64) { gather<double, GatherTile<double, 64, 32, 4, 2>>(args); }
KERNEL(gather_f64_8, ConvArgs, 64) { gather<double, GatherTile<double, 128, 8, 4, 1>>(args); }
