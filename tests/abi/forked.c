/* A child has none of its parent's threads, and can free what it finds all the same. */
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tiled.h"

#define EXPECT(claim) do { if (!(claim)) { fprintf(stderr, "line %d: %s\n", __LINE__, #claim); return 1; } } while (0)

int main(void) {
    const int64_t shape[4] = {1, 3, 64, 64};
    tiled_engine *engine = NULL;
    tiled_graph *graph = NULL;
    tiled_plan *plan = NULL;
    tiled_executor *executor = NULL;
    tiled_engine_options options;
    EXPECT(tiled_engine_options_init(&options, sizeof options) == TILED_STATUS_OK);
    options.threads = 3;
    EXPECT(tiled_engine_new(&options, &engine) == TILED_STATUS_OK);
    EXPECT(tiled_graph_builtin("light", &graph) == TILED_STATUS_OK);
    EXPECT(tiled_plan_new(engine, graph, TILED_DTYPE_F32, shape, 1, NULL, NULL, &plan) == TILED_STATUS_OK);
    EXPECT(tiled_executor_new(engine, plan, &executor) == TILED_STATUS_OK);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child > 0) {
        int ended = 1;
        EXPECT(waitpid(child, &ended, 0) == child && ended == 0);
    }
    EXPECT(tiled_executor_free(executor) == TILED_STATUS_OK && tiled_plan_free(plan) == TILED_STATUS_OK);
    EXPECT(tiled_graph_free(graph) == TILED_STATUS_OK && tiled_engine_free(engine) == TILED_STATUS_OK);
    EXPECT(tiled_live_handles() == 0);
    return 0;
}
