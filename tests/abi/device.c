/* Devices: what there is, an engine on a simulated GPU, and tensors that lie on it, by DLPack and by hand. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiled.h"

typedef struct { int32_t device_type, device_id; } place;
typedef struct { uint8_t code, bits; uint16_t lanes; } data_type;
struct DLManagedTensor {
    struct {
        void *data;
        place where;
        int32_t ndim;
        data_type dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *);
};

#define EXPECT(claim) do { if (!(claim)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #claim, said()); return 1; } } while (0)

static const char *said(void) {
    static char message[512];
    tiled_last_error(message, sizeof message);
    return message;
}

static tiled_status engine_on(const char *device, tiled_engine **engine) {
    tiled_engine_options options;
    tiled_engine_options_init(&options, sizeof options);
    options.threads = 1;
    options.device = device;
    return tiled_engine_new(&options, engine);
}

enum { HEIGHT = 24, WIDTH = 40, IN = 3 * HEIGHT * WIDTH, OUT = 32 * (HEIGHT / 4) * (WIDTH / 4) };
static const int64_t input_shape[4] = {1, 3, HEIGHT, WIDTH}, output_shape[4] = {1, 32, HEIGHT / 4, WIDTH / 4};

static tiled_status run(tiled_executor *executor, tiled_weights *weights, tiled_tensor input, tiled_tensor output) {
    tiled_source source;
    tiled_sink sink;
    tiled_io io;
    tiled_source_init(&source, sizeof source);
    tiled_sink_init(&sink, sizeof sink);
    tiled_io_init(&io, sizeof io);
    source.tensor = input;
    sink.tensor = output;
    io.inputs = &source, io.input_count = 1;
    io.outputs = &sink, io.output_count = 1;
    return tiled_executor_run(executor, weights, &io, NULL);
}

/* What is there on every machine: a list, and devices that are not. */
static int list(int *simulates) {
    size_t count = 0, length = 0;
    EXPECT(tiled_device_count(&count) == TILED_STATUS_OK && count >= 1);
    for (size_t i = 0; i < count; ++i) {
        tiled_device device;
        char name[64], text[512];
        EXPECT(tiled_device_describe(i, &device, sizeof device) == TILED_STATUS_OK);
        EXPECT(tiled_device_name(i, name, sizeof name, &length) == TILED_STATUS_OK && strlen(name) == length);
        EXPECT(tiled_device_text(i, text, sizeof text, &length) == TILED_STATUS_OK && length > 0);
        EXPECT(device.struct_size == sizeof device && (i > 0 || (device.kind == TILED_DEVICE_CPU && device.is_there)));
        if (strcmp(name, "cuda-sim:h200") != 0) continue;
        EXPECT(device.kind == TILED_DEVICE_CUDA_SIM && device.multiprocessors == 132 && device.memory_bytes > (1ull << 36));
        *simulates = device.is_there;
    }
    EXPECT(tiled_device_name(count, NULL, 0, &length) == TILED_STATUS_OUT_OF_RANGE);

    tiled_engine *engine = NULL;
    EXPECT(engine_on("gpu", &engine) == TILED_STATUS_NOT_FOUND && engine == NULL);
    EXPECT(strstr(said(), "unknown device `gpu`") != NULL);
    const tiled_status far = engine_on("cuda:77", &engine);
    EXPECT(far == TILED_STATUS_NO_DEVICE || far == TILED_STATUS_LEFT_OUT);
    EXPECT(engine == NULL && strstr(said(), "device `cuda:77`") != NULL);
    EXPECT(engine_on("cpu", &engine) == TILED_STATUS_OK && tiled_engine_free(engine) == TILED_STATUS_OK);
    return 0;
}

int main(void) {
    int simulates = 0;
    if (list(&simulates) != 0) return 1;
    if (!simulates) {
        printf("skipped: no simulated GPU here\n");
        return 0;
    }

    tiled_engine *engine = NULL, *host = NULL;
    tiled_graph *graph = NULL;
    tiled_weights *weights = NULL;
    tiled_plan *plan = NULL, *on_host = NULL, *none = NULL;
    tiled_executor *executor = NULL, *of_host = NULL, *other = NULL;
    EXPECT(engine_on("cuda-sim", &engine) == TILED_STATUS_OK && engine_on(NULL, &host) == TILED_STATUS_OK);
    char name[128];
    size_t length = 0;
    EXPECT(tiled_engine_name(engine, name, sizeof name, &length) == TILED_STATUS_OK && strstr(name, "simulated") != NULL);
    tiled_engine_options both;
    tiled_engine_options_init(&both, sizeof both);
    both.device = "cuda-sim", both.isa = "portable";
    EXPECT(tiled_engine_new(&both, &(tiled_engine *){NULL}) == TILED_STATUS_INVALID_ARGUMENT);

    EXPECT(tiled_graph_builtin("light", &graph) == TILED_STATUS_OK);
    EXPECT(tiled_weights_new(graph, TILED_DTYPE_F32, 1, &weights) == TILED_STATUS_OK);
    tiled_plan_options options;
    tiled_plan_options_init(&options, sizeof options);
    options.memory_bytes = 1ull << 40;
    EXPECT(tiled_plan_new(engine, graph, TILED_DTYPE_F32, input_shape, 1, NULL, &options, &none) == TILED_STATUS_BUDGET);
    EXPECT(none == NULL && strstr(said(), "budget of 1099511627776 bytes: device `cuda") != NULL);
    options.memory_bytes = 0;
    options.tile[0] = 3, options.tile[1] = 4;
    options.hold = TILED_HOLD_RECOMPUTE;
    EXPECT(tiled_plan_new(engine, graph, TILED_DTYPE_F32, input_shape, 1, NULL, &options, &plan) == TILED_STATUS_OK);
    EXPECT(tiled_plan_new(host, graph, TILED_DTYPE_F32, input_shape, 1, NULL, &options, &on_host) == TILED_STATUS_OK);
    EXPECT(tiled_executor_new(host, plan, &other) == TILED_STATUS_INVALID_ARGUMENT && other == NULL);
    EXPECT(tiled_executor_new(engine, plan, &executor) == TILED_STATUS_OK);
    EXPECT(tiled_executor_new(host, on_host, &of_host) == TILED_STATUS_OK);

    float *image = malloc(IN * sizeof *image), *turned = malloc(IN * sizeof *turned);
    float *expected = malloc(OUT * sizeof *expected), *got = malloc(OUT * sizeof *got);
    EXPECT(image && turned && expected && got);
    for (int i = 0; i < IN; ++i) image[i] = (float)(i % 23) / 23.0f - 0.5f;
    /* channels last, and rows from the bottom */
    for (int y = 0; y < HEIGHT; ++y)
        for (int x = 0; x < WIDTH; ++x)
            for (int c = 0; c < 3; ++c) turned[((HEIGHT - 1 - y) * WIDTH + x) * 3 + c] = image[(c * HEIGHT + y) * WIDTH + x];
    tiled_tensor input, output;
    EXPECT(tiled_tensor_contiguous(TILED_DTYPE_F32, image, input_shape, &input, sizeof input) == TILED_STATUS_OK);
    EXPECT(tiled_tensor_contiguous(TILED_DTYPE_F32, expected, output_shape, &output, sizeof output) == TILED_STATUS_OK);
    EXPECT(run(executor, weights, input, output) == TILED_STATUS_OK);

    /* the same from the device to the device, as another framework would hand it over */
    int64_t shape[4] = {1, 3, HEIGHT, WIDTH};
    int64_t strides[4] = {IN, 1, -WIDTH * 3, 3};
    struct DLManagedTensor managed = {
        {turned + (HEIGHT - 1) * WIDTH * 3, {12, 0}, 4, {2, 32, 1}, shape, strides, 0}, NULL, NULL};
    tiled_tensor there, back = output;
    EXPECT(tiled_tensor_from_dlpack(&managed, &there, sizeof there) == TILED_STATUS_OK);
    EXPECT(there.device_type == TILED_MEMORY_CUDA_SIM && there.stream == NULL);
    memset(got, 0xff, OUT * sizeof *got);
    back.data = got, back.device_type = TILED_MEMORY_CUDA_SIM;
    EXPECT(run(executor, weights, there, back) == TILED_STATUS_OK);
    EXPECT(memcmp(got, expected, OUT * sizeof *got) == 0);
    memset(got, 0xff, OUT * sizeof *got);
    back.device_type = TILED_MEMORY_HOST;
    EXPECT(run(executor, weights, there, back) == TILED_STATUS_OK && memcmp(got, expected, OUT * sizeof *got) == 0);

    /* what is refused has written nothing */
    memset(got, 0, OUT * sizeof *got);
    EXPECT(run(of_host, weights, there, back) == TILED_STATUS_OTHER_DEVICE);
    EXPECT(strstr(said(), "the plan runs on cpu") != NULL);
    tiled_tensor elsewhere = there;
    elsewhere.device_type = TILED_MEMORY_CUDA;
    EXPECT(run(executor, weights, elsewhere, back) == TILED_STATUS_OTHER_DEVICE);
    EXPECT(strstr(said(), "lies on cuda:0, the plan runs on cuda (NVIDIA H200, simulated)") != NULL);
    elsewhere = there, elsewhere.stream = &managed;
    EXPECT(run(executor, weights, elsewhere, back) == TILED_STATUS_DEVICE);
    EXPECT(strstr(said(), "is no stream of this device") != NULL);
    elsewhere = there, elsewhere.device_type = 7;
    EXPECT(run(executor, weights, elsewhere, back) == TILED_STATUS_UNSUPPORTED);
    elsewhere = there, elsewhere.dtype = TILED_DTYPE_I32;
    EXPECT(run(executor, weights, elsewhere, back) == TILED_STATUS_DTYPE);
    tiled_pool2d pool;
    EXPECT(tiled_pool2d_init(&pool, sizeof pool) == TILED_STATUS_OK);
    EXPECT(tiled_max_pool2d_forward(engine, &pool, NULL, &there, &back) == TILED_STATUS_OTHER_DEVICE);
    for (int i = 0; i < OUT; ++i) EXPECT(got[i] == 0.0f);

    /* operators on memory of the host run on the device as well */
    tiled_engine *engines[2] = {engine, host};
    float pooled[2][3 * HEIGHT * WIDTH / 4];
    const int64_t half[4] = {1, 3, HEIGHT / 2, WIDTH / 2};
    pool.kernel[0] = pool.kernel[1] = pool.stride[0] = pool.stride[1] = 2;
    for (int i = 0; i < 2; ++i) {
        tiled_tensor small;
        EXPECT(tiled_tensor_contiguous(TILED_DTYPE_F32, pooled[i], half, &small, sizeof small) == TILED_STATUS_OK);
        EXPECT(tiled_max_pool2d_forward(engines[i], &pool, NULL, &input, &small) == TILED_STATUS_OK);
    }
    EXPECT(memcmp(pooled[0], pooled[1], sizeof pooled[0]) == 0);

    tiled_executor_free(executor), tiled_executor_free(of_host);
    tiled_plan_free(plan), tiled_plan_free(on_host);
    tiled_weights_free(weights), tiled_graph_free(graph);
    tiled_engine_free(engine), tiled_engine_free(host);
    EXPECT(tiled_live_handles() == 0);
    free(image), free(turned), free(expected), free(got);
    return 0;
}
