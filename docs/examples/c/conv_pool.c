/* A tiled convolution with ReLU and a 2x2 maximum pooling, on memory of the caller. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tiled.h"

enum { C = 3, O = 8, H = 61, W = 53, PH = H / 2, PW = W / 2 };

static void check(tiled_status status) {
    if (status != TILED_STATUS_OK) {
        char message[256];
        tiled_last_error(message, sizeof message);
        fprintf(stderr, "%s: %s\n", tiled_status_name(status), message);
        exit(1);
    }
}

/* Numbers that are exact in float and the same in every language. */
static float number(uint32_t i) { return (float)((i * 2654435761u) >> 8) / 16777216.0f - 0.5f; }

static void fill(float *to, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; ++i) to[i] = number((uint32_t)i + seed);
}

/* FNV-1a over the bits, so that two runs can be compared. */
static uint64_t hash(const float *values, size_t count) {
    const unsigned char *bytes = (const unsigned char *)values;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *values; ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

static tiled_tensor tensor(float *data, int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t shape[4] = {n, c, h, w};
    tiled_tensor described;
    check(tiled_tensor_contiguous(TILED_DTYPE_F32, data, shape, &described, sizeof described));
    return described;
}

int main(void) {
    static float x[C * H * W], weight[O * C * 9], bias[O], features[O * H * W], pooled[O * PH * PW];
    fill(x, C * H * W, 1);
    fill(weight, O * C * 9, 100000);
    fill(bias, O, 200000);
    const tiled_tensor input = tensor(x, 1, C, H, W), w = tensor(weight, O, C, 3, 3), b = tensor(bias, 1, O, 1, 1);
    const tiled_tensor middle = tensor(features, 1, O, H, W), output = tensor(pooled, 1, O, PH, PW);

    tiled_conv2d conv;
    check(tiled_conv2d_init(&conv, sizeof conv));
    conv.activation = TILED_ACTIVATION_RELU;
    conv.padding_before[0] = conv.padding_before[1] = conv.padding_after[0] = conv.padding_after[1] = 1;
    tiled_pool2d pool;
    check(tiled_pool2d_init(&pool, sizeof pool));
    tiled_operator_options options;
    check(tiled_operator_options_init(&options, sizeof options));
    options.tile[0] = options.tile[1] = 16;

    tiled_engine *engine = NULL;
    check(tiled_engine_new(NULL, &engine));
    check(tiled_conv2d_forward(engine, &conv, &options, &input, &w, &b, &middle));
    check(tiled_max_pool2d_forward(engine, &pool, &options, &middle, &output));
    check(tiled_engine_free(engine));

    printf("conv_pool %016llx\n", (unsigned long long)hash(pooled, O * PH * PW));
    return tiled_live_handles() == 0 ? 0 : 2;
}
