/* Threads share const handles (network, plan, grid), each with an engine, weights and an executor of its own. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tiled.h"

enum { THREADS = 4, RUNS = 3, H = 96, W = 80, O = 32 };

static tiled_graph *graph;
static tiled_plan *plan;
static tiled_engine *planner;
static tiled_grid *grid;
static float image[3 * H * W], results[THREADS][O * (H / 4) * (W / 4)];

/* Compiled with RACE, every thread of the library counts without a lock, which a sanitizer must see. */
#ifdef RACE
static uint64_t counted;
#define COUNT() (++counted)
#else
#define COUNT() ((void)0)
#endif

static int32_t step(void *user, uint64_t done, uint64_t total) {
    (void)user;
    COUNT();
    return done > total;
}

#define CHECK(call) do { if ((call) != TILED_STATUS_OK) return (void *)#call; } while (0)

static void *work(void *argument) {
    float *result = argument;
    const int64_t shape[4] = {1, 3, H, W}, out[4] = {1, O, H / 4, W / 4};
    tiled_engine *engine = NULL;
    tiled_weights *weights = NULL;
    tiled_executor *executor = NULL;
    tiled_plan_summary summary;
    tiled_engine_options options;
    CHECK(tiled_engine_options_init(&options, sizeof options));
    options.threads = 2;
    CHECK(tiled_engine_new(&options, &engine));
    CHECK(tiled_weights_new(graph, TILED_DTYPE_F32, 5, &weights));
    CHECK(tiled_plan_summarise(plan, &summary, sizeof summary));
    CHECK(tiled_executor_new(planner, plan, &executor));
    tiled_source input;
    tiled_sink output;
    tiled_io io;
    CHECK(tiled_source_init(&input, sizeof input));
    CHECK(tiled_sink_init(&output, sizeof output));
    CHECK(tiled_io_init(&io, sizeof io));
    CHECK(tiled_tensor_contiguous(TILED_DTYPE_F32, image, shape, &input.tensor, sizeof input.tensor));
    CHECK(tiled_tensor_contiguous(TILED_DTYPE_F32, result, out, &output.tensor, sizeof output.tensor));
    tiled_progress progress;
    CHECK(tiled_progress_init(&progress, sizeof progress));
    progress.step = step;
    io.inputs = &input, io.input_count = 1, io.outputs = &output, io.output_count = 1, io.progress = &progress;
    for (int run = 0; run < RUNS; ++run) {
        tiled_region tile;
        CHECK(tiled_grid_tile(grid, run, 0, &tile));
        CHECK(tiled_executor_run(executor, weights, &io, NULL));
        if (tiled_graph_value(graph, "no such value", &(tiled_value){0}) != TILED_STATUS_NOT_FOUND) return (void *)"value";
        char message[64];
        tiled_last_error(message, sizeof message);
        if (strstr(message, "no such value") == NULL) return (void *)"the message of another thread";
    }
    CHECK(tiled_executor_free(executor));
    CHECK(tiled_weights_free(weights));
    CHECK(tiled_engine_free(engine));
    return NULL;
}

int main(void) {
    const int64_t shape[4] = {1, 3, H, W};
    for (int i = 0; i < 3 * H * W; ++i) image[i] = (float)(i % 17) - 8;
    if (tiled_graph_builtin("light", &graph) || tiled_engine_new(NULL, &planner) || tiled_grid_new(H, W, 16, 16, &grid) ||
        tiled_plan_new(planner, graph, TILED_DTYPE_F32, shape, 1, NULL, NULL, &plan))
        return 1;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, results[i]);
    int failed = 0;
    for (int i = 0; i < THREADS; ++i) {
        void *what = NULL;
        pthread_join(threads[i], &what);
        if (what != NULL) fprintf(stderr, "thread %d: %s\n", i, (const char *)what), failed = 1;
        if (memcmp(results[0], results[i], sizeof results[0]) != 0) fprintf(stderr, "thread %d differs\n", i), failed = 1;
    }
    tiled_plan_free(plan), tiled_engine_free(planner), tiled_graph_free(graph), tiled_grid_free(grid);
    return failed || tiled_live_handles() != 0;
}
