// Convolution and the gradient for its input by tensor cores.
#include "dense.cuh"
#include "tensor.cuh"

// The sums of a tile: rows are pixels, columns are output channels.
template <int TILE_PIXELS, int TILE_OUTPUTS, bool THRICE>
struct Products {
    static constexpr int PIXELS = TILE_PIXELS, OUTPUTS = TILE_OUTPUTS, TALL = 4, WIDE = 4;
    typedef Warps<PIXELS, OUTPUTS, TALL, WIDE> Of;
    static constexpr int THREADS = Of::THREADS, STAGES = 5;
    static constexpr int SPARE = 2;  // so that rows of weights begin in different banks
    Of of;
    float sums[TALL][WIDE][4];

    DEVICE void begin(const ConvArgs& args, int thread, int group, int first_output) {
        of.begin(thread);
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float bias = bias_of<float>(args, group, first_output + of.col + 8 * j + 2 * of.in + k % 2);
#pragma unroll
                for (int i = 0; i < TALL; ++i) sums[i][j][k] = bias;
            }
        }
    }

    DEVICE void add(const DenseShared<float, Products>& shared, int stage) {
        Factors<2> weights[WIDE];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float* row = &shared.weights[stage][of.in + 4 * k][0].at[of.col + of.across];
#pragma unroll
            for (int j = 0; j < WIDE; ++j) set_factor<THRICE>(weights[j], k, row[8 * j]);
        }
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
            Factors<4> in;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int pixel = of.row + 16 * i + k % 2 * 8 + of.across;
                set_factor<THRICE>(in, k, shared.in[stage][k / 2][pixel].at[of.in]);
            }
#pragma unroll
            for (int j = 0; j < WIDE; ++j) add_products<THRICE>(sums[i][j], in, weights[j]);
        }
    }

    DEVICE void write(const ConvArgs& args, i64 first_pixel, i64 pixels, int group, int first_output) {
#pragma unroll
        for (int i = 0; i < 2 * TALL; ++i) {
            const i64 number = first_pixel + of.row + 8 * i + of.across;
            if (number >= pixels) break;
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                const float two[2] = {sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]};
                write_pixel<float, 2>(args, two, number, group, first_output + of.col + 8 * j + 2 * of.in);
            }
        }
    }
};

KERNEL(dense_tf32_128, ConvArgs, 256) { dense<float, Products<128, 128, false>>(args); }
KERNEL(dense_tf32_64, ConvArgs, 128) { dense<float, Products<128, 64, false>>(args); }
KERNEL(dense_tf32_32, ConvArgs, 128) { dense<float, Products<256, 32, false>>(args); }
KERNEL(dense_f32x3_128, ConvArgs, 256) { dense<float, Products<128, 128, true>>(args); }
KERNEL(dense_f32x3_64, ConvArgs, 128) { dense<float, Products<128, 64, true>>(args); }
KERNEL(dense_f32x3_32, ConvArgs, 128) { dense<float, Products<256, 32, true>>(args); }
