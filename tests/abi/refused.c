/* An allocator that gives nothing at call k, or from call k on, for every k: a status each time, and nothing is lost. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiled.h"

static atomic_long calls, blocks, bytes, refused;
static long first;
static int lasts, armed;

static void *allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    if (armed) {
        const long call = atomic_fetch_add(&calls, 1);
        if (lasts ? call >= first : call == first) {
            ++refused;
            return NULL;
        }
    }
    ++blocks;
    bytes += (long)size;
    return aligned_alloc(alignment < 64 ? 64 : alignment, (size + 63) / 64 * 64);
}

static void deallocate(void *user, void *block, size_t size, size_t alignment) {
    (void)user, (void)alignment;
    --blocks;
    bytes -= (long)size;
    free(block);
}

static const char *scenario = "";
static long at(void) { return first; }
#define FAIL(...) do { fprintf(stderr, "%s, call %ld%s, line %d: ", scenario, at(), lasts ? " and all after" : "", __LINE__); \
    fprintf(stderr, __VA_ARGS__); fputc('\n', stderr); exit(1); } while (0)
#define EXPECT(claim) do { if (!(claim)) FAIL("%s", #claim); } while (0)
/* What needs no large block must go well. */
#define OK(call) do { const tiled_status status_ = (call); if (status_ != TILED_STATUS_OK) FAIL("%s: %s", #call, tiled_status_name(status_)); } while (0)
/* Goes on to `end` with the status of a call that does not succeed. */
#define TRY(call) do { status = (call); if (status != TILED_STATUS_OK) goto end; } while (0)

enum { BATCH = 1, CHANNELS = 16, SIDE = 160, OUT = 24 };
static void *inputs, *weights_data, *outputs, *grads, *grad_weights, *expected;
static int32_t dtype;
static tiled_engine *engine;
static tiled_graph *graph;

static size_t width(void) { return dtype == TILED_DTYPE_F64 ? 8 : 4; }

static void fill(void *data, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        const double value = (double)(seed >> 8) / (1 << 24) - 0.5;
        if (dtype == TILED_DTYPE_F64) ((double *)data)[i] = value; else ((float *)data)[i] = (float)value;
    }
}

static tiled_tensor tensor(void *data, int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t shape[4] = {n, c, h, w};
    tiled_tensor made;
    OK(tiled_tensor_contiguous(dtype, data, shape, &made, sizeof made));
    return made;
}

/* A chain so long that each of its lists is a large block: read, written, and built node by node. */
enum { NODES = 3000 };

static tiled_status a_network(void) {
    tiled_status status;
    tiled_graph *read = NULL, *built = NULL;
    static char json[NODES * 100];
    size_t length = (size_t)sprintf(json, "{\"inputs\": [{\"name\": \"n0\", \"channels\": 8}], \"nodes\": [");
    for (int i = 1; i <= NODES; ++i)
        length += (size_t)sprintf(json + length, "%s{\"name\": \"n%d\", \"op\": \"sigmoid\", \"inputs\": [\"n%d\"]}", i > 1 ? ", " : "", i, i - 1);
    length += (size_t)sprintf(json + length, "], \"outputs\": [\"n%d\"]}", NODES);
    TRY(tiled_graph_from_json(json, length, &read));
    size_t written = 0;
    TRY(tiled_graph_to_json(read, NULL, 0, &written));
    EXPECT(written > 1000);
    tiled_value last;
    OK(tiled_graph_new(&built));
    TRY(tiled_graph_add_input(built, "n0", 8, &last));
    for (int i = 1; i <= NODES; ++i) {
        char name[16];
        sprintf(name, "n%d", i);
        TRY(tiled_graph_add_node(built, name, "sigmoid", NULL, &last, 1, &last));
    }
    TRY(tiled_graph_set_outputs(built, &last, 1));
end:
    OK(tiled_graph_free(read));
    OK(tiled_graph_free(built));
    return status;
}

/* A plan of such a chain, for inference or for training. */
static tiled_graph *chain;
static int trains;

static tiled_graph *a_chain(void) {
    tiled_graph *made;
    tiled_value last;
    OK(tiled_graph_new(&made));
    OK(tiled_graph_add_input(made, "n0", 2, &last));
    for (int i = 1; i <= NODES; ++i) {
        char name[16];
        sprintf(name, "n%d", i);
        const char *attributes = "{\"out_channels\": 2, \"kernel_size\": 1}";
        OK(i % 2 ? tiled_graph_add_node(made, name, "conv2d", attributes, &last, 1, &last)
                 : tiled_graph_add_node(made, name, "sigmoid", NULL, &last, 1, &last));
    }
    OK(tiled_graph_set_outputs(made, &last, 1));
    return made;
}

static tiled_status a_plan(void) {
    tiled_status status;
    tiled_plan *plan = NULL;
    const int64_t shape[4] = {1, 2, 16, 16};
    tiled_objective objective;
    OK(tiled_objective_init(&objective, sizeof objective));
    if (trains) objective.mode = TILED_MODE_TRAIN, objective.loss = TILED_LOSS_SUM, objective.grad_params = 1;
    tiled_plan_options options;
    OK(tiled_plan_options_init(&options, sizeof options));
    options.memory_bytes = TILED_MEMORY_UNLIMITED;
    options.hold = TILED_HOLD_SLIDE;
    options.tile[0] = 4, options.tile[1] = 16;
    TRY(tiled_plan_new(engine, chain, dtype, shape, 1, &objective, &options, &plan));
end:
    OK(tiled_plan_free(plan));
    return status;
}

/* A grid whose bounds are large. */
static tiled_status a_grid(void) {
    tiled_status status;
    tiled_grid *grid = NULL, *scaled = NULL;
    TRY(tiled_grid_new(100000, 7, 1, 7, &grid));
    TRY(tiled_grid_rescale(grid, 50000, 3, &scaled));
end:
    OK(tiled_grid_free(grid));
    OK(tiled_grid_free(scaled));
    return status;
}

/* Texts that explain a plan may come from the system where they are refused. */
static tiled_status a_picture(void) {
    tiled_status status;
    tiled_plan *plan = NULL;
    tiled_weights *made = NULL;
    size_t written = 0;
    const int64_t shape[4] = {1, 3, 96, 96};
    TRY(tiled_plan_new(engine, graph, dtype, shape, 1, NULL, NULL, &plan));
    TRY(tiled_plan_explain(plan, TILED_EXPLAIN_SVG, NULL, 0, &written));
    TRY(tiled_weights_new(graph, dtype, 1, &made));
end:
    OK(tiled_plan_free(plan));
    OK(tiled_weights_free(made));
    return status;
}

static tiled_status all_weights(void) {
    tiled_status status;
    tiled_weights *made = NULL, *copy = NULL;
    TRY(tiled_weights_new(graph, dtype, 1, &made));
    TRY(tiled_weights_clone(made, &copy));
end:
    OK(tiled_weights_free(made));
    OK(tiled_weights_free(copy));
    return status;
}

static int32_t give(void *user, tiled_region region, const tiled_tensor *window) {
    (void)user, (void)region;
    const size_t count = (size_t)(window->shape[0] * window->shape[1] * window->shape[2] * window->shape[3]);
    fill(window->data, count, 7);
    return 0;
}

static int32_t take(void *user, tiled_region region, const tiled_tensor *window) {
    (void)user, (void)region, (void)window;
    return 0;
}

static int ends;
static int32_t end_of_sink(void *user, int32_t is_complete) {
    (void)user, (void)is_complete;
    ++ends;
    return 0;
}

enum kind { INFER, CALLBACKS, WINOGRAD, SGD, ADAMW };
static tiled_plan *plans[5];
static tiled_weights *run_weights;

static void make_plan(enum kind kind) {
    const int64_t shape[4] = {1, 3, 96, 96};
    tiled_objective objective;
    OK(tiled_objective_init(&objective, sizeof objective));
    if (kind >= SGD) {
        objective.mode = TILED_MODE_TRAIN;
        objective.loss = TILED_LOSS_MEAN_SQUARED_ERROR;
        objective.grad_params = 1;
        objective.outputs = 0;
    }
    tiled_plan_options options;
    OK(tiled_plan_options_init(&options, sizeof options));
    options.winograd = kind == WINOGRAD;
    options.parallelism = 2;
    OK(tiled_plan_new(engine, graph, dtype, shape, 1, &objective, &options, &plans[kind]));
}

static tiled_status runs(enum kind kind, int repeats) {
    tiled_status status;
    tiled_executor *executor = NULL;
    tiled_trainer *trainer = NULL;
    tiled_weights *own = NULL;
    tiled_io io;
    tiled_source source, target;
    tiled_sink sink;
    OK(tiled_io_init(&io, sizeof io));
    OK(tiled_source_init(&source, sizeof source));
    OK(tiled_source_init(&target, sizeof target));
    OK(tiled_sink_init(&sink, sizeof sink));
    source.tensor = tensor(inputs, 1, 3, 96, 96);
    target.tensor = tensor(outputs, 1, 3, 96, 96);
    sink.tensor = target.tensor;
    if (kind == CALLBACKS) source.read = give, sink.write = take, sink.end = end_of_sink;
    io.inputs = &source, io.input_count = 1;
    if (kind >= SGD) io.target = &target; else io.outputs = &sink, io.output_count = 1;
    TRY(tiled_weights_clone(run_weights, &own));
    if (kind >= SGD) {
        tiled_optimizer optimizer;
        OK(tiled_optimizer_init(&optimizer, sizeof optimizer));
        optimizer.kind = kind == SGD ? TILED_OPTIMIZER_SGD : TILED_OPTIMIZER_ADAMW;
        optimizer.momentum = 0.9;
        TRY(tiled_trainer_new(engine, plans[kind], &optimizer, &trainer));
        for (int i = 0; i < repeats; ++i) TRY(tiled_trainer_step(trainer, own, &io, NULL));
    } else {
        TRY(tiled_executor_new(engine, plans[kind], &executor));
        for (int i = 0; i < repeats; ++i) {
            ends = 0;
            status = tiled_executor_run(executor, own, &io, NULL);
            EXPECT(ends == (kind == CALLBACKS));
            if (status == TILED_STATUS_OK) continue;
            /* the executor is not poisoned: with memory it runs */
            const int was = armed;
            armed = 0;
            OK(tiled_executor_run(executor, own, &io, NULL));
            armed = was;
            goto end;
        }
    }
end:
    OK(tiled_executor_free(executor));
    OK(tiled_trainer_free(trainer));
    OK(tiled_weights_free(own));
    return status;
}

static tiled_status infer(void) { return runs(INFER, 2); }
static tiled_status callbacks(void) { return runs(CALLBACKS, 1); }
static tiled_status winograd(void) { return runs(WINOGRAD, 1); }
static tiled_status sgd(void) { return runs(SGD, 2); }
static tiled_status adamw(void) { return runs(ADAMW, 2); }

/* One operator on an engine of its own, whose memory is fresh; then, where it was refused, again with memory. */
enum operator { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, MAX, MAX_BACKWARD, AVERAGE, AVERAGE_BACKWARD, OPERATORS };
static enum operator which;

static tiled_status apply(tiled_engine *own) {
    tiled_conv2d conv;
    tiled_pool2d pool;
    OK(tiled_conv2d_init(&conv, sizeof conv));
    OK(tiled_pool2d_init(&pool, sizeof pool));
    conv.padding_before[0] = conv.padding_before[1] = conv.padding_after[0] = conv.padding_after[1] = 1;
    pool.kernel[0] = pool.kernel[1] = pool.stride[0] = pool.stride[1] = 2;
    const tiled_tensor x = tensor(inputs, BATCH, CHANNELS, SIDE, SIDE), y = tensor(outputs, BATCH, OUT, SIDE, SIDE);
    const tiled_tensor w = tensor(weights_data, OUT, CHANNELS, 3, 3), gw = tensor(grad_weights, OUT, CHANNELS, 3, 3);
    const tiled_tensor gx = tensor(grads, BATCH, CHANNELS, SIDE, SIDE), b = tensor(expected, 1, OUT, 1, 1);
    const tiled_tensor half = tensor(outputs, BATCH, CHANNELS, SIDE / 2, SIDE / 2);
    switch (which) {
    case FORWARD: return tiled_conv2d_forward(own, &conv, NULL, &x, &w, NULL, &y);
    case BACKWARD_INPUT: return tiled_conv2d_backward_input(own, &conv, NULL, &y, &w, &gx);
    case BACKWARD_WEIGHT: return tiled_conv2d_backward_weight(own, &conv, NULL, &x, &y, &gw, &b);
    case MAX: return tiled_max_pool2d_forward(own, &pool, NULL, &x, &half);
    case MAX_BACKWARD: return tiled_max_pool2d_backward(own, &pool, NULL, &half, &x, &gx);
    case AVERAGE: return tiled_avg_pool2d_forward(own, &pool, NULL, &x, &half);
    default: return tiled_avg_pool2d_backward(own, &pool, NULL, &half, &gx);
    }
}

static tiled_status operation(void) {
    tiled_engine_options options;
    tiled_engine *own = NULL;
    OK(tiled_engine_options_init(&options, sizeof options));
    options.threads = 2;
    OK(tiled_engine_new(&options, &own));
    const tiled_status status = apply(own);
    if (status != TILED_STATUS_OK) {
        armed = 0;
        OK(apply(own));
        armed = 1;
    }
    OK(tiled_engine_free(own));
    return status;
}

/* Does it with each call refused in turn; `may_go_well` where a text may come from the system. */
static long every_call(const char *name, tiled_status (*work)(void), int may_go_well) {
    scenario = name;
    long points = 0;
    for (lasts = 0; lasts <= 1; ++lasts) {
        for (first = 0;; ++first) {
            const long held_blocks = blocks, held_bytes = bytes;
            const size_t handles = tiled_live_handles();
            calls = 0;
            refused = 0;
            armed = 1;
            const tiled_status status = work();
            armed = 0;
            if (blocks != held_blocks || bytes != held_bytes)
                FAIL("%ld blocks of %ld bytes lost", blocks - held_blocks, bytes - held_bytes);
            EXPECT(tiled_live_handles() == handles);
            if (refused == 0) {
                EXPECT(status == TILED_STATUS_OK);
                break;
            }
            char message[256];
            EXPECT(tiled_last_error(message, sizeof message) > 0 || status == TILED_STATUS_OK);
            if (status != TILED_STATUS_OUT_OF_MEMORY && !(may_go_well && status == TILED_STATUS_OK))
                FAIL("%s: %s", tiled_status_name(status), message);
            if (status == TILED_STATUS_OUT_OF_MEMORY) EXPECT(strstr(message, "bytes could not be had") != NULL);
            ++points;
        }
        EXPECT(first > 0);
    }
    printf("%s: %ld calls refused\n", name, points);
    return points;
}

int main(void) {
    tiled_allocator allocator;
    OK(tiled_allocator_init(&allocator, sizeof allocator));
    allocator.allocate = allocate, allocator.deallocate = deallocate;
    const size_t elements = (size_t)BATCH * OUT * SIDE * SIDE;
    void **const arrays[] = {&inputs, &weights_data, &outputs, &grads, &grad_weights, &expected};
    long points = 0;
#ifdef DOUBLE_ALONE
    const int32_t first_type = TILED_DTYPE_F64;
#else
    const int32_t first_type = TILED_DTYPE_F32;
#endif
    for (dtype = first_type; dtype <= TILED_DTYPE_F64; ++dtype) {
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
            *arrays[i] = malloc(elements * width());
            EXPECT(*arrays[i] != NULL);
            fill(*arrays[i], elements, (unsigned)i + 1);
        }
        OK(tiled_allocator_set(&allocator));
        tiled_engine_options options;
        OK(tiled_engine_options_init(&options, sizeof options));
        options.threads = 2;
        OK(tiled_engine_new(&options, &engine));
        OK(tiled_graph_builtin("unet", &graph));
        OK(tiled_weights_new(graph, dtype, 1, &run_weights));
        for (int kind = INFER; kind <= ADAMW; ++kind) make_plan((enum kind)kind);

        chain = a_chain();
        points += every_call("a network", a_network, 0);
        for (trains = 0; trains <= 1; ++trains) points += every_call("a plan", a_plan, 0);
        points += every_call("a grid", a_grid, 0);
        points += every_call("a plan explained, weights", a_picture, 1);
        points += every_call("weights", all_weights, 0);
        points += every_call("runs", infer, 0);
        points += every_call("runs with callbacks", callbacks, 0);
        points += every_call("runs by Winograd's filtering", winograd, 0);
        points += every_call("training by SGD", sgd, 0);
        points += every_call("training by AdamW", adamw, 0);
        for (which = FORWARD; which < OPERATORS; ++which) points += every_call("an operator", operation, 0);

        for (int kind = INFER; kind <= ADAMW; ++kind) OK(tiled_plan_free(plans[kind]));
        OK(tiled_weights_free(run_weights));
        OK(tiled_graph_free(graph));
        OK(tiled_graph_free(chain));
        OK(tiled_engine_free(engine));
        OK(tiled_allocator_set(NULL));
        EXPECT(blocks == 0 && bytes == 0 && tiled_live_handles() == 0);
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) free(*arrays[i]);
    }
    EXPECT(points > 100);
    return 0;
}
