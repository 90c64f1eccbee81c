/* A network over an image that one callback reads and another writes, within a memory budget. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tiled.h"

enum { C = 3, H = 192, W = 160, O = 32, OH = H / 4, OW = W / 4 };

static void check(tiled_status status) {
    if (status != TILED_STATUS_OK) {
        char message[256];
        tiled_last_error(message, sizeof message);
        fprintf(stderr, "%s: %s\n", tiled_status_name(status), message);
        exit(1);
    }
}

static float number(uint32_t i) { return (float)((i * 2654435761u) >> 8) / 16777216.0f - 0.5f; }

static uint64_t hash(const float *values, size_t count) {
    const unsigned char *bytes = (const unsigned char *)values;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *values; ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

/* Fills a region of the image: here from a formula, elsewhere from a file or a scanner. Any thread. */
static int32_t read_region(void *user, tiled_region region, const tiled_tensor *window) {
    (void)user;
    float *to = window->data;
    for (int64_t c = 0; c < C; ++c)
        for (int64_t y = region.rows.begin; y < region.rows.end; ++y)
            for (int64_t x = region.cols.begin; x < region.cols.end; ++x)
                *to++ = number((uint32_t)((c * H + y) * W + x));
    return 0;
}

/* Takes a region of the result. Regions are disjoint, so that threads need no lock. */
static int32_t write_region(void *user, tiled_region region, const tiled_tensor *window) {
    float *whole = user;
    const float *from = window->data;
    for (int64_t c = 0; c < O; ++c)
        for (int64_t y = region.rows.begin; y < region.rows.end; ++y)
            for (int64_t x = region.cols.begin; x < region.cols.end; ++x) whole[(c * OH + y) * OW + x] = *from++;
    return 0;
}

int main(void) {
    static float result[O * OH * OW];
    const int64_t shape[4] = {1, C, H, W};
    tiled_engine_options threads;
    check(tiled_engine_options_init(&threads, sizeof threads));
    threads.threads = 2;
    tiled_plan_options options;
    check(tiled_plan_options_init(&options, sizeof options));
    options.memory_bytes = 8 << 20;

    tiled_engine *engine = NULL;
    tiled_graph *graph = NULL;
    tiled_weights *weights = NULL;
    tiled_plan *plan = NULL;
    tiled_executor *executor = NULL;
    check(tiled_engine_new(&threads, &engine));
    check(tiled_graph_builtin("light", &graph));
    check(tiled_weights_new(graph, TILED_DTYPE_F32, 7, &weights));
    check(tiled_plan_new(engine, graph, TILED_DTYPE_F32, shape, 1, NULL, &options, &plan));
    tiled_plan_summary summary;
    check(tiled_plan_summarise(plan, &summary, sizeof summary));
    fprintf(stderr, "peak of %llu bytes\n", (unsigned long long)summary.peak_bytes);
    check(tiled_executor_new(engine, plan, &executor));

    tiled_source input;
    check(tiled_source_init(&input, sizeof input));
    input.tensor.shape[0] = 1, input.tensor.shape[1] = C, input.tensor.shape[2] = H, input.tensor.shape[3] = W;
    input.read = read_region;
    tiled_sink output;
    check(tiled_sink_init(&output, sizeof output));
    output.tensor.shape[0] = 1, output.tensor.shape[1] = O, output.tensor.shape[2] = OH, output.tensor.shape[3] = OW;
    output.write = write_region;
    output.user = result;
    tiled_io io;
    check(tiled_io_init(&io, sizeof io));
    io.inputs = &input, io.input_count = 1;
    io.outputs = &output, io.output_count = 1;
    check(tiled_executor_run(executor, weights, &io, NULL));

    check(tiled_executor_free(executor));
    check(tiled_plan_free(plan));
    check(tiled_weights_free(weights));
    check(tiled_graph_free(graph));
    check(tiled_engine_free(engine));
    printf("stream %016llx\n", (unsigned long long)hash(result, O * OH * OW));
    return tiled_live_handles() == 0 ? 0 : 2;
}
