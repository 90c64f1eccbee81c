/* Two training steps of a network that is built node by node. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiled.h"

enum { C = 3, H = 40, W = 56 };

static void check(tiled_status status) {
    if (status != TILED_STATUS_OK) {
        char message[256];
        tiled_last_error(message, sizeof message);
        fprintf(stderr, "%s: %s\n", tiled_status_name(status), message);
        exit(1);
    }
}

static double number(uint32_t i) { return (double)((i * 2654435761u) >> 8) / 16777216.0 - 0.5; }

static uint64_t bits(double value) {
    uint64_t b;
    memcpy(&b, &value, sizeof b);
    return b;
}

int main(void) {
    static double x[C * H * W], t[H * W];
    for (uint32_t i = 0; i < C * H * W; ++i) x[i] = number(i);
    for (uint32_t i = 0; i < H * W; ++i) t[i] = number(i + 500000);
    const int64_t shape[4] = {1, C, H, W}, target_shape[4] = {1, 1, H, W};

    tiled_graph *graph = NULL;
    tiled_value value, output;
    check(tiled_graph_new(&graph));
    check(tiled_graph_add_input(graph, "x", C, &value));
    check(tiled_graph_add_node(graph, "c1", "conv2d", "{\"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}", &value,
                               1, &value));
    check(tiled_graph_add_node(graph, "r1", "relu", NULL, &value, 1, &value));
    check(tiled_graph_add_node(graph, "c2", "conv2d", "{\"out_channels\": 1, \"kernel_size\": 3, \"padding\": 1}", &value,
                               1, &output));
    check(tiled_graph_set_outputs(graph, &output, 1));

    tiled_engine_options threads;
    check(tiled_engine_options_init(&threads, sizeof threads));
    threads.threads = 2;
    tiled_objective objective;
    check(tiled_objective_init(&objective, sizeof objective));
    objective.mode = TILED_MODE_TRAIN;
    objective.loss = TILED_LOSS_MEAN_SQUARED_ERROR;
    objective.outputs = 0;
    objective.grad_params = 1;
    tiled_plan_options options;
    check(tiled_plan_options_init(&options, sizeof options));
    options.hold = TILED_HOLD_SLIDE;
    options.tile[0] = 4, options.tile[1] = 16;
    tiled_optimizer sgd;
    check(tiled_optimizer_init(&sgd, sizeof sgd));
    sgd.learning_rate = 0.1;
    sgd.momentum = 0.9;

    tiled_engine *engine = NULL;
    tiled_weights *weights = NULL;
    tiled_plan *plan = NULL;
    tiled_trainer *trainer = NULL;
    check(tiled_engine_new(&threads, &engine));
    check(tiled_weights_new(graph, TILED_DTYPE_F64, 3, &weights));
    check(tiled_plan_new(engine, graph, TILED_DTYPE_F64, shape, 1, &objective, &options, &plan));
    check(tiled_trainer_new(engine, plan, &sgd, &trainer));

    tiled_source input, target;
    check(tiled_source_init(&input, sizeof input));
    check(tiled_source_init(&target, sizeof target));
    check(tiled_tensor_contiguous(TILED_DTYPE_F64, x, shape, &input.tensor, sizeof input.tensor));
    check(tiled_tensor_contiguous(TILED_DTYPE_F64, t, target_shape, &target.tensor, sizeof target.tensor));
    tiled_io io;
    check(tiled_io_init(&io, sizeof io));
    io.inputs = &input, io.input_count = 1;
    io.target = &target;
    for (int step = 0; step < 2; ++step) {
        tiled_report report = {.struct_size = sizeof report};
        check(tiled_trainer_step(trainer, weights, &io, &report));
        printf("train loss %016" PRIx64 "\n", bits(report.loss));
    }
    double bias[4];
    size_t index = 0;
    check(tiled_weights_find(weights, "c1.bias", &index));
    check(tiled_weights_get(weights, index, TILED_DTYPE_F64, bias, 4));
    for (int i = 0; i < 4; ++i) printf("train bias %016" PRIx64 "\n", bits(bias[i]));

    check(tiled_trainer_free(trainer));
    check(tiled_plan_free(plan));
    check(tiled_weights_free(weights));
    check(tiled_graph_free(graph));
    check(tiled_engine_free(engine));
    return tiled_live_handles() == 0 ? 0 : 2;
}
