// Winograd's minimal filtering F(4×4, 3×3), with the matrices of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"
// (2016): a tile of 4×4 outputs is Aᵀ[Σ_c (G g Gᵀ) ⊙ (Bᵀ d B)]A over patches d of 6×6 inputs. The tiles lie on one grid over the whole
// output; for each of the 36 points the sum over channels is one chain of multiply-adds. So no bit depends on the region or the launch.
//
// A block of threads takes some tiles by some outputs through all steps: patches are transformed in shared memory, a few channels at a
// time, each warp adds up the products of three points, and the sums of all points meet in shared memory at the end.
#include "dense.cuh"

constexpr int TILE = 4, PATCH = 6, POINTS = PATCH * PATCH;
// Channels of a step, and those of them that a thread transforms.
constexpr int CHANNELS = 4, PAIR = 2;
constexpr int WARPS = 12, OWN_POINTS = POINTS / WARPS;

// Bᵀd
template <typename T>
DEVICE void transform_patch(T (&d)[PATCH]) {
    const T four = T(4), two = T(2);
    const T even = multiply_add(-four, d[2], d[4]), odd = multiply_add(-four, d[1], d[3]);
    const T near = d[4] - d[2], far = d[3] - d[1];
    const T first = multiply_add(four, d[0], multiply_add(T(-5), d[2], d[4]));
    const T last = multiply_add(four, d[1], multiply_add(T(-5), d[3], d[5]));
    d[0] = first;
    d[1] = even + odd;
    d[2] = even - odd;
    d[3] = multiply_add(two, far, near);
    d[4] = multiply_add(-two, far, near);
    d[5] = last;
}

// Aᵀm
template <typename T>
DEVICE void transform_sums(const T (&m)[PATCH], T (&y)[TILE]) {
    const T sum = m[1] + m[2], difference = m[1] - m[2];
    const T outer_sum = m[3] + m[4], outer_difference = m[3] - m[4];
    y[0] = m[0] + (sum + outer_sum);
    y[1] = multiply_add(T(2), outer_difference, difference);
    y[2] = multiply_add(T(4), outer_sum, sum);
    y[3] = multiply_add(T(8), outer_difference, difference) + m[5];
}

// The tiles that hold outputs of a part, by their numbers: image, row, column.
struct Tiles {
    i64 row0, col0;
    int rows, cols;
    i64 count;
    DEVICE Tiles(const Part& part)
        : row0(part.row0 / TILE),
          col0(part.col0 / TILE),
          rows(static_cast<int>((part.row0 + part.rows + TILE - 1) / TILE - row0)),
          cols(static_cast<int>((part.col0 + part.cols + TILE - 1) / TILE - col0)),
          count(static_cast<i64>(part.images) * rows * cols) {}
    DEVICE Place place(i64 number) const {
        const Part as_part = {0, 0, rows, cols, 0, 0};
        return place_of(as_part, number);
    }
};

// How a block of threads shares out TILES by OUTPUTS of each point: a lane has OWN_TILES by OWN_OUTPUTS that lie together.
template <typename Type, int OF_TILES, int OF_OUTPUTS, int TILES_OF_LANE, int OUTPUTS_OF_LANE>
struct Filtering {
    typedef Type T;
    static constexpr int TILES = OF_TILES, OUTPUTS = OF_OUTPUTS, OWN_TILES = TILES_OF_LANE, OWN_OUTPUTS = OUTPUTS_OF_LANE;
    static constexpr int ACROSS = TILES / OWN_TILES;
    static constexpr int THREADS = WARPS * 32;
    // threads that transform: two channels of a column, then of a row, of a patch
    static constexpr int TRANSFORMS = TILES * PATCH * (CHANNELS / PAIR);
    static_assert(ACROSS * (OUTPUTS / OWN_OUTPUTS) == 32, "the lanes of a warp share out the sums of a point");
    static_assert(TRANSFORMS <= THREADS && ACROSS * OUTPUTS <= THREADS, "a thread does one thing at a time");
    static constexpr int VECTOR = OWN_OUTPUTS < LANES ? OWN_OUTPUTS : LANES;

    struct Factors {
        // so far apart that the two pairs of channels lie in other banks
        T patches[POINTS][CHANNELS][TILES + TILES / 4];
        T weights[POINTS][CHANNELS][OUTPUTS];
    };
    struct Shared {
        i64 rows[PATCH][TILES];  // where the rows of patches begin in a window
        union {
            Factors factors;
            T sums[POINTS][ACROSS][OUTPUTS + VECTOR];
        };
    };
};

// The sums of a tile and an output, as they lie in shared memory, to outputs.
template <typename F>
DEVICE void write_tile(const ConvArgs& args, const typename F::Shared& shared, int across, int output, const Tiles& tiles, i64 tile,
                       int channel) {
    typedef typename F::T T;
    const Part& part = args.part;
    T rows[PATCH][TILE];  // by columns of the points
#pragma unroll
    for (int j = 0; j < PATCH; ++j) {
        T column[PATCH];
#pragma unroll
        for (int i = 0; i < PATCH; ++i) column[i] = shared.sums[i * PATCH + j][across][output];
        transform_sums(column, rows[j]);
    }
    const Place place = tiles.place(tile);
    const i64 y0 = (tiles.row0 + place.row) * TILE, x0 = (tiles.col0 + place.col) * TILE;
    const T bias = bias_of<T>(args, 0, channel);
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
        T points[PATCH], values[TILE];
#pragma unroll
        for (int j = 0; j < PATCH; ++j) points[j] = rows[j][i];
        transform_sums(points, values);
        const i64 y = y0 + i;
        if (y < part.row0 || y >= part.row0 + part.rows) continue;
#pragma unroll
        for (int j = 0; j < TILE; ++j) {
            const i64 x = x0 + j;
            const T value[1] = {values[j] + bias};
            if (x >= part.col0 && x < part.col0 + part.cols) finish<T, 1>(args, value, place.n, y, x, 0, channel);
        }
    }
}

template <typename F>
DEVICE void winograd(const ConvArgs& args) {
    typedef typename F::T T;
    SHARED(typename F::Shared, shared);
    const int thread = threadIdx.x, lane = thread % 32;
    const int first_output = blockIdx.y * F::OUTPUTS;
    const i64 first_tile = static_cast<i64>(blockIdx.x) * F::TILES;
    const Tiles tiles(args.part);
    const ConvAxis rows = args.axes[0], cols = args.axes[1];

    // what this thread transforms: a pair of channels of a patch, of that a column, then a row
    const bool transforms = thread < F::TRANSFORMS;
    const int own_pair = thread % (CHANNELS / PAIR) * PAIR;
    const int own_patch = thread / (CHANNELS / PAIR) % F::TILES, line = thread / (CHANNELS / PAIR * F::TILES);
    const i64 number = first_tile + own_patch;
    const Place place = tiles.place(number < tiles.count ? number : tiles.count - 1);
    const int x = cols.base + place.col * TILE + line;
    unsigned kept = 0;  // the rows of the column that lie in the image
#pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        const int y = rows.base + place.row * TILE + i;
        const bool is_inside = transforms && y >= rows.low && y < rows.high && x >= cols.low && x < cols.high;
        kept |= is_inside ? 1u << i : 0u;
        int slot = args.in.first + y;
        if (slot >= args.in.ring) slot -= args.in.ring;
        // the threads of both pairs of channels write the same
        if (transforms && line == i) shared.rows[i][own_patch] = slot * args.in.row_stride;
    }
    const T* column = static_cast<const T*>(args.in.data) + own_pair;
    if (kept != 0) column += place.n * args.in.batch_stride + of_pixels(x, args.in.shift);
    // to the next block of channels, once a step has come to its end
    const i64 to_block = args.in.block_stride - (STEP - CHANNELS);
    int channels_left = args.reduced - own_pair;
    T own[PAIR][PATCH];
    auto load = [&](int step) {
#pragma unroll
        for (int i = 0; i < PATCH; ++i) {
            Vec<T, PAIR> values = {};
            if ((kept >> i & 1) != 0 && channels_left > 0) {
                values = *reinterpret_cast<const Vec<T, PAIR>*>(column + shared.rows[i][own_patch]);
            }
            own[0][i] = values.at[0];
            // a block may end with lanes that are no channel
            own[1][i] = channels_left > 1 ? values.at[1] : T(0);
        }
        channels_left -= CHANNELS;
        column += step % (STEP / CHANNELS) == 0 ? CHANNELS : to_block;
    };
    // of the weights: some lanes of a channel, of points that are so far apart
    constexpr int VECTORS = F::OUTPUTS / LANES, APART = F::THREADS / (CHANNELS * VECTORS);
    const int vector = thread % VECTORS, channel = thread / VECTORS % CHANNELS, point = thread / (VECTORS * CHANNELS);
    const int output = first_output + vector * LANES;
    const bool is_output = output < args.outputs_padded;
    const i64 of_point = static_cast<i64>(args.reduced_padded) * args.outputs_padded;
    const T* weights = static_cast<const T*>(args.weights) + point * of_point + static_cast<i64>(channel) * args.outputs_padded +
                       (is_output ? output : 0);
    auto copy_weights = [&]() {
#pragma unroll
        for (int i = 0; i * APART < POINTS; ++i) {
            if (POINTS % APART != 0 && point + i * APART >= POINTS) break;
            copy_lanes<LANES>(&shared.factors.weights[point + i * APART][channel][vector * LANES], weights + i * APART * of_point,
                              is_output);
        }
        weights += CHANNELS * args.outputs_padded;
        copy_async_commit();
    };

    const int own_point = thread / 32 * OWN_POINTS;
    const int across = lane % F::ACROSS, own_output = lane / F::ACROSS * F::OWN_OUTPUTS;
    T sums[OWN_POINTS][F::OWN_TILES][F::OWN_OUTPUTS] = {};
    const int steps = args.reduced_padded / CHANNELS;
    __syncthreads();
    load(0);
    for (int step = 0; step < steps; ++step) {
        copy_weights();
        if (transforms) {
#pragma unroll
            for (int k = 0; k < PAIR; ++k) {
                transform_patch(own[k]);
#pragma unroll
                for (int i = 0; i < PATCH; ++i) shared.factors.patches[i * PATCH + line][own_pair + k][own_patch] = own[k][i];
            }
        }
        __syncthreads();
        if (transforms) {
#pragma unroll
            for (int k = 0; k < PAIR; ++k) {
                T row[PATCH];
#pragma unroll
                for (int j = 0; j < PATCH; ++j) row[j] = shared.factors.patches[line * PATCH + j][own_pair + k][own_patch];
                transform_patch(row);
#pragma unroll
                for (int j = 0; j < PATCH; ++j) shared.factors.patches[line * PATCH + j][own_pair + k][own_patch] = row[j];
            }
            // under way while products are added up
            if (step + 1 < steps) load(step + 1);
        }
        copy_async_wait<0>();
        __syncthreads();
#pragma unroll
        for (int p = 0; p < OWN_POINTS; ++p) {
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c) {
                const T* patches = &shared.factors.patches[own_point + p][c][across * F::OWN_TILES];
                const Vec<T, F::OWN_TILES> in = *reinterpret_cast<const Vec<T, F::OWN_TILES>*>(patches);
                Vec<T, F::VECTOR> weight[F::OWN_OUTPUTS / F::VECTOR];
#pragma unroll
                for (int j = 0; j < F::OWN_OUTPUTS / F::VECTOR; ++j) {
                    weight[j] = *reinterpret_cast<const Vec<T, F::VECTOR>*>(
                        &shared.factors.weights[own_point + p][c][own_output + j * F::VECTOR]);
                }
#pragma unroll
                for (int i = 0; i < F::OWN_TILES; ++i) {
#pragma unroll
                    for (int j = 0; j < F::OWN_OUTPUTS; ++j) {
                        sums[p][i][j] = multiply_add(in.at[i], weight[j / F::VECTOR].at[j % F::VECTOR], sums[p][i][j]);
                    }
                }
            }
        }
        // none reads the factors any more
        __syncthreads();
    }

    // one tile of each lane at a time: there is no room for more
#pragma unroll
    for (int i = 0; i < F::OWN_TILES; ++i) {
#pragma unroll
        for (int p = 0; p < OWN_POINTS; ++p) {
#pragma unroll
            for (int j = 0; j < F::OWN_OUTPUTS; j += F::VECTOR) {
                T* to = &shared.sums[own_point + p][across][own_output + j];
                *reinterpret_cast<Vec<T, F::VECTOR>*>(to) = *reinterpret_cast<const Vec<T, F::VECTOR>*>(&sums[p][i][j]);
            }
        }
        __syncthreads();
        const int to = thread % F::OUTPUTS, from = thread / F::OUTPUTS;
        const i64 tile = first_tile + from * F::OWN_TILES + i;
        if (from < F::ACROSS && tile < tiles.count && first_output + to < args.outputs) {
            write_tile<F>(args, shared, from, to, tiles, tile, first_output + to);
        }
        __syncthreads();
    }
}

KERNEL(winograd_f32, ConvArgs, 384) { winograd<Filtering<float, 32, 32, 4, 8>>(args); }
KERNEL(winograd_f64, ConvArgs, 384) { winograd<Filtering<double, 16, 16, 4, 2>>(args); }
