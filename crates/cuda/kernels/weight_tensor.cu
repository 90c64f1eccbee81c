// Gradients of weights by tensor cores.
#include "tensor.cuh"
#include "weights.cuh"

// The sums of a tile: rows are output channels, columns are terms.
template <int TILE_OUTPUTS, int TILE_TERMS, int WARP_OUTPUTS, bool THRICE>
struct Products {
    static constexpr int OUTPUTS = TILE_OUTPUTS, TERMS = TILE_TERMS, TALL = WARP_OUTPUTS / 16, WIDE = 4;
    typedef Warps<OUTPUTS, TERMS, TALL, WIDE> Of;
    static constexpr int THREADS = Of::THREADS, STAGES = 5;
    static constexpr int SPARE = 8;  // so that pixels begin in different banks
    Of of;
    float sums[TALL][WIDE][4];

    DEVICE void begin(int thread) {
        of.begin(thread);
#pragma unroll
        for (int i = 0; i < TALL * WIDE * 4; ++i) sums[i / 4 / WIDE][i / 4 % WIDE][i % 4] = 0.0f;
    }

    DEVICE void add(const WeightShared<float, Products>& shared, int stage) {
        Factors<2> x[WIDE];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float* pixel = &shared.x[stage][of.in + 4 * k][of.col + of.across];
#pragma unroll
            for (int j = 0; j < WIDE; ++j) set_factor<THRICE>(x[j], k, pixel[8 * j]);
        }
#pragma unroll
        for (int i = 0; i < TALL; ++i) {
            Factors<4> gy;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int output = of.row + 16 * i + k % 2 * 8 + of.across;
                set_factor<THRICE>(gy, k, shared.gy[stage][of.in + k / 2 * 4][output]);
            }
#pragma unroll
            for (int j = 0; j < WIDE; ++j) add_products<THRICE>(sums[i][j], gy, x[j]);
        }
    }

    template <typename Write>
    DEVICE void write(Write write) {
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const auto of_term = write(of.col + 8 * j + 2 * of.in + k);
#pragma unroll
                for (int i = 0; i < 2 * TALL; ++i) {
                    of_term(of.row + 8 * i + of.across, sums[i / 2][j][i % 2 * 2 + k]);
                }
            }
        }
    }
};

KERNEL(weights_tf32_128, WeightArgs, 128) { weights<float, LANES, Products<128, 64, 64, false>>(args); }
KERNEL(weights_tf32_64, WeightArgs, 64) { weights<float, LANES, Products<64, 64, 64, false>>(args); }
KERNEL(weights_tf32_32, WeightArgs, 64) { weights<float, LANES, Products<32, 64, 32, false>>(args); }
KERNEL(weights_f32x3_128, WeightArgs, 128) { weights<float, LANES, Products<128, 64, 64, true>>(args); }
KERNEL(weights_f32x3_64, WeightArgs, 64) { weights<float, LANES, Products<64, 64, 64, true>>(args); }
KERNEL(weights_f32x3_32, WeightArgs, 64) { weights<float, LANES, Products<32, 64, 32, true>>(args); }
