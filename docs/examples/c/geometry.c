/* A small framework with kernels of its own, which asks for regions and halos alone: two convolutions, tile by tile. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tiled.h"

enum { H = 45, W = 37 };

static void check(tiled_status status) {
    if (status != TILED_STATUS_OK) {
        char message[256];
        tiled_last_error(message, sizeof message);
        fprintf(stderr, "%s: %s\n", tiled_status_name(status), message);
        exit(1);
    }
}

/* The framework's kernel: a 3x3 convolution with padding 1 of one region. Coordinates are those of the whole image. */
static void convolve(const float *from, tiled_region held, float *to, tiled_region wanted) {
    const int64_t width = held.cols.end - held.cols.begin;
    for (int64_t y = wanted.rows.begin; y < wanted.rows.end; ++y)
        for (int64_t x = wanted.cols.begin; x < wanted.cols.end; ++x) {
            float sum = 0;
            for (int64_t v = y - 1; v <= y + 1; ++v)
                for (int64_t u = x - 1; u <= x + 1; ++u)
                    if (v >= 0 && v < H && u >= 0 && u < W)
                        sum += from[(v - held.rows.begin) * width + (u - held.cols.begin)] * (float)(v - y + 2 * (u - x) + 1);
            *to++ = sum;
        }
}

static uint64_t hash(const float *values, size_t count) {
    const unsigned char *bytes = (const unsigned char *)values;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *values; ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

int main(void) {
    static float image[H * W], whole[H * W], tiled[H * W], middle[H * W], tile_in[H * W], tile_middle[H * W], tile_out[H * W];
    for (int i = 0; i < H * W; ++i) image[i] = (float)(i % 23) - 11;
    const tiled_region all = {{0, H}, {0, W}};
    convolve(image, all, middle, all);
    convolve(middle, all, whole, all);

    const tiled_window window[2] = {{3, 1, 1, 1}, {3, 1, 1, 1}};
    tiled_grid *grid = NULL;
    int64_t counts[2];
    check(tiled_grid_new(H, W, 16, 16, &grid));
    check(tiled_grid_counts(grid, counts));
    for (int64_t row = 0; row < counts[0]; ++row)
        for (int64_t col = 0; col < counts[1]; ++col) {
            tiled_region wanted, halo, input;
            check(tiled_grid_tile(grid, row, col, &wanted));
            check(tiled_region_receptive(window, wanted, H, W, &halo));
            check(tiled_region_receptive(window, halo, H, W, &input));
            printf("geometry [%lld,%lld)x[%lld,%lld)\n", (long long)input.rows.begin, (long long)input.rows.end,
                   (long long)input.cols.begin, (long long)input.cols.end);
            float *to = tile_in;
            for (int64_t y = input.rows.begin; y < input.rows.end; ++y)
                for (int64_t x = input.cols.begin; x < input.cols.end; ++x) *to++ = image[y * W + x];
            convolve(tile_in, input, tile_middle, halo);
            convolve(tile_middle, halo, tile_out, wanted);
            const float *from = tile_out;
            for (int64_t y = wanted.rows.begin; y < wanted.rows.end; ++y)
                for (int64_t x = wanted.cols.begin; x < wanted.cols.end; ++x) tiled[y * W + x] = *from++;
        }
    check(tiled_grid_free(grid));
    if (hash(whole, H * W) != hash(tiled, H * W)) return 1;
    printf("geometry %016llx\n", (unsigned long long)hash(tiled, H * W));
    return tiled_live_handles() == 0 ? 0 : 2;
}
