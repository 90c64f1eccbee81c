/* Large blocks come from the caller's allocator and go back to it; a logger hears what is made and what fails. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiled.h"

static atomic_size_t held, asked;
static atomic_int refuse;

static void *allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    if (refuse) return NULL;
    held += size;
    ++asked;
    return aligned_alloc(alignment < 16 ? 16 : alignment, (size + 63) / 64 * 64);
}

static void deallocate(void *user, void *block, size_t size, size_t alignment) {
    (void)user, (void)alignment;
    held -= size;
    free(block);
}

static int errors, infos;
static void hear(void *user, int32_t level, const char *message) {
    (void)user;
    if (strlen(message) > 0) *(level == TILED_LOG_ERROR ? &errors : &infos) += 1;
}

#define EXPECT(claim) do { if (!(claim)) { fprintf(stderr, "line %d: %s\n", __LINE__, #claim); return 1; } } while (0)

int main(void) {
    tiled_allocator allocator;
    EXPECT(tiled_allocator_init(&allocator, sizeof allocator) == TILED_STATUS_OK);
    EXPECT(tiled_allocator_set(&allocator) == TILED_STATUS_INVALID_ARGUMENT);
    allocator.allocate = allocate, allocator.deallocate = deallocate;
    EXPECT(tiled_allocator_set(&allocator) == TILED_STATUS_OK);
    tiled_logger logger;
    EXPECT(tiled_logger_init(&logger, sizeof logger) == TILED_STATUS_OK);
    logger.level = TILED_LOG_INFO, logger.log = hear;
    EXPECT(tiled_logger_set(&logger) == TILED_STATUS_OK);

    const int64_t shape[4] = {1, 3, 256, 256};
    tiled_engine *engine = NULL;
    tiled_graph *graph = NULL;
    tiled_plan *plan = NULL;
    tiled_executor *executor = NULL, *none = NULL;
    EXPECT(tiled_engine_new(NULL, &engine) == TILED_STATUS_OK);
    EXPECT(tiled_graph_builtin("vgg2", &graph) == TILED_STATUS_OK);
    EXPECT(tiled_plan_new(engine, graph, TILED_DTYPE_F32, shape, 1, NULL, NULL, &plan) == TILED_STATUS_OK);
    EXPECT(tiled_executor_new(engine, plan, &executor) == TILED_STATUS_OK);
    EXPECT(held > 0 && asked > 0);
    refuse = 1;
    EXPECT(tiled_executor_new(engine, plan, &none) == TILED_STATUS_OUT_OF_MEMORY && none == NULL);
    refuse = 0;
    EXPECT(infos >= 3 && errors == 1);
    EXPECT(tiled_allocator_set(NULL) == TILED_STATUS_OK);
    EXPECT(tiled_executor_free(executor) == TILED_STATUS_OK && tiled_plan_free(plan) == TILED_STATUS_OK);
    EXPECT(tiled_graph_free(graph) == TILED_STATUS_OK && tiled_engine_free(engine) == TILED_STATUS_OK);
    EXPECT(held == 0);
    EXPECT(tiled_logger_set(NULL) == TILED_STATUS_OK && tiled_live_handles() == 0);
    return 0;
}
