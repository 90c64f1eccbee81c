// What the C++ wrapper promises: ownership moves, failures are thrown, what a lambda throws comes out of the call.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "tiled.hpp"

static int failures = 0;

static void expect(bool holds, const char *claim) {
    if (!holds) {
        std::fprintf(stderr, "does not hold: %s\n", claim);
        ++failures;
    }
}

template <class Body> static tiled_status status_of(Body &&body) {
    try {
        body();
    } catch (const tiled::error &failure) {
        expect(!std::string(failure.what()).empty(), "a failure has a message");
        return failure.status();
    }
    return TILED_STATUS_OK;
}

int main() {
    {
        static_assert(!std::is_copy_constructible_v<tiled::graph> && std::is_nothrow_move_constructible_v<tiled::graph>);
        auto first = tiled::graph::builtin("light");
        tiled_graph *raw = first.get();
        auto second = std::move(first);
        expect(!first && second.get() == raw, "moving moves the handle");
        second = tiled::graph::builtin("unet");
        expect(tiled_live_handles() == 1, "assignment frees what was held");
        expect(tiled_graph_free(raw) == TILED_STATUS_INVALID_HANDLE, "a freed handle is told");
        tiled_graph *released = second.release();
        expect(tiled_graph_free(released) == TILED_STATUS_OK && !second, "a released handle is the caller's");
    }
    expect(tiled_live_handles() == 0, "owners free their handles");
    expect(status_of([] { tiled::graph::builtin("nothing"); }) == TILED_STATUS_NOT_FOUND, "an unknown network is told");
    expect(status_of([] { tiled::graph::from_json("{"); }) == TILED_STATUS_NETWORK, "broken JSON is told");

    auto engine = tiled::engine::make();
    const auto graph = tiled::graph::builtin("light");
    auto weights = tiled::weights::make<float>(graph, 1);
    expect(tiled::graph::from_json(graph.to_json()).to_json() == graph.to_json(), "a network survives its text");
    auto small = tiled::plan_options();
    small.memory_bytes = 1;
    expect(status_of([&] { tiled::plan::make<float>(engine, graph, {{1, 3, 64, 64}}, tiled::objective(), small); }) ==
               TILED_STATUS_BUDGET,
           "a budget of one byte is told");
    const auto plan = tiled::plan::make<float>(engine, graph, {{1, 3, 64, 64}});
    expect(!plan.explain().empty() && plan.explain(TILED_EXPLAIN_JSON).front() == '{', "a plan explains itself");
    expect(plan.explain(TILED_EXPLAIN_SVG).rfind("<svg", 0) == 0, "a plan draws itself");
    auto executor = tiled::executor::make(engine, plan);
    std::vector<float> image(3 * 64 * 64), out(32 * 16 * 16);
    tiled::io thrown;
    thrown.input<float>({1, 3, 64, 64}, [](tiled::region, tiled::block<float>) { throw std::runtime_error("no disk"); });
    thrown.output(tiled::tensor(out.data(), {1, 32, 16, 16}));
    try {
        executor.run(weights, thrown);
        expect(false, "what a source throws comes out of the run");
    } catch (const std::runtime_error &failure) {
        expect(std::string(failure.what()) == "no disk", "it is what was thrown");
    }
    tiled::io cancelled;
    cancelled.input(tiled::tensor(image.data(), {1, 3, 64, 64})).output(tiled::tensor(out.data(), {1, 32, 16, 16}));
    cancelled.progress([](uint64_t, uint64_t) { return false; });
    expect(status_of([&] { executor.run(weights, cancelled); }) == TILED_STATUS_CANCELLED, "progress cancels");
    tiled::io fine;
    fine.input(tiled::tensor(image.data(), {1, 3, 64, 64})).output(tiled::tensor(out.data(), {1, 32, 16, 16}));
    expect(status_of([&] { executor.run(weights, fine); }) == TILED_STATUS_OK, "an executor runs again after a failure");
    const tiled::tensor in(image.data(), {1, 3, 64, 64});
    expect(status_of([&] { engine.max_pool2d_forward(tiled::pool2d(), in, in); }) != TILED_STATUS_OK,
           "an output over its input is told");
    return failures;
}
