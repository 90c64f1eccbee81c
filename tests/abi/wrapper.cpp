// What the C++ wrapper promises: ownership moves, failures are thrown, what a lambda throws comes out of the call.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <type_traits>
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
    auto &&graph = tiled::take(tiled::graph::builtin("light"));
    static_assert(std::is_same_v<decltype(tiled::take(tiled::graph::builtin("light"))), tiled::graph>, "a value, no reference");
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
    const auto output = graph.output(0);
    expect(graph.counts()[2] == 1 && graph.channels(output) == 32, "a network knows its outputs");
    expect(graph.value(graph.name(output)) == output, "a value has a name");
    expect(plan.sweep(0)[2] > 0 && !plan.node_name(0, 0).empty(), "a plan knows its passes");
    expect(engine.threads() >= 1 && tiled::version() == TILED_VERSION_MINOR << 8, "engine and library describe themselves");
    std::vector<bool> ends;
    tiled::io streamed;
    streamed.input(tiled::tensor(image.data(), {1, 3, 64, 64}));
    streamed.output<float>(
        {1, 32, 16, 16}, [](tiled::region, tiled::block<const float>) {}, true, [&](bool is_complete) { ends.push_back(is_complete); });
    executor.run(weights, streamed);
    streamed.progress([](uint64_t, uint64_t) { return false; });
    expect(status_of([&] { executor.run(weights, streamed); }) == TILED_STATUS_CANCELLED, "a sink is cancelled");
    expect(ends == std::vector<bool>{true, false}, "a sink hears each end once");
    const auto chain = tiled::graph::from_json(R"({"inputs": [{"name": "x", "channels": 3}],
        "nodes": [{"name": "a", "op": "relu", "inputs": ["x"]}, {"name": "b", "op": "relu", "inputs": ["a"]},
                  {"name": "c", "op": "relu", "inputs": ["b"]}], "outputs": ["a", "b", "c"]})");
    auto of_chain = tiled::executor::make(engine, tiled::plan::make<float>(engine, chain, {{1, 3, 64, 64}}));
    auto none = tiled::weights::make<float>(chain, 1);
    tiled::io ending;
    ending.input(tiled::tensor(image.data(), {1, 3, 64, 64}));
    ends.clear();
    const auto end = [&](bool is_complete) {
        ends.push_back(is_complete);
        if (ends.size() == 2) throw std::runtime_error("no name");
    };
    for (int place = 0; place < 3; ++place)
        ending.output<float>({1, 3, 64, 64}, [](tiled::region, tiled::block<const float>) {}, true, end);
    try {
        of_chain.run(none, ending);
        expect(false, "what the end of a sink throws comes out of the run");
    } catch (const std::runtime_error &failure) {
        expect(std::string(failure.what()) == "no name", "it is what was thrown");
    }
    expect(ends == std::vector<bool>{true, true, false}, "a sink behind one that fails at its end hears so");

    auto later = tiled::objective();
    later.mode = TILED_MODE_TRAIN;
    later.loss = TILED_LOSS_GRAD_OUTPUT_LATER;
    later.grad_inputs = later.grad_params = 1;
    const auto halves = tiled::plan::make<float>(engine, graph, {{1, 3, 64, 64}}, later);
    auto in_halves = tiled::executor::make(engine, halves);
    std::vector<float> wanted(32 * 16 * 16, 1.0F), gradient(3 * 64 * 64);
    tiled::io first, second;
    first.input(tiled::tensor(image.data(), {1, 3, 64, 64})).output(tiled::tensor(out.data(), {1, 32, 16, 16}));
    second.input(tiled::tensor(image.data(), {1, 3, 64, 64}));
    second.grad_output(tiled::tensor(wanted.data(), {1, 32, 16, 16}));
    second.grad_input(tiled::tensor(gradient.data(), {1, 3, 64, 64}));
    auto waiting = in_halves.forward(weights, first);
    expect(waiting.bytes() > 0, "a run that waits holds memory");
    in_halves.backward(std::move(waiting), weights, second);
    expect(std::any_of(gradient.begin(), gradient.end(), [](float value) { return value != 0; }), "gradients come later");

    const auto grid = tiled::grid::from_tile(64, 64, 32, 32).rescale(16, 16);
    expect(grid.tile(1, 1).rows.begin == 8, "a grid is carried over to a smaller tensor");
    const auto both = tiled::intersect({{0, 4}, {0, 4}}, {{2, 9}, {3, 9}});
    expect(both.rows.begin == 2 && both.cols.end == 4, "regions intersect");

    const tiled::tensor in(image.data(), {1, 3, 64, 64});
    int released = 0;
    auto *offered = tiled::to_dlpack_versioned(in, [](void *user) { ++*static_cast<int *>(user); }, &released);
    expect(tiled::from_dlpack(offered).extents() == in.extents(), "a tensor goes out by DLPack and comes back");
    // the deleter lies behind the version and the context in dlpack.h
    (*reinterpret_cast<void (**)(DLManagedTensorVersioned *)>(reinterpret_cast<char *>(offered) + 16))(offered);
    expect(released == 1, "what was offered is released once");

    auto logger = tiled::logger();
    static int messages = 0;
    logger.log = [](void *, int32_t, const char *) { ++messages; };
    tiled::logger_set(logger);
    expect(status_of([] { tiled::graph::builtin("nothing"); }) == TILED_STATUS_NOT_FOUND && messages == 1, "a logger hears");
    tiled::logger_set();
    expect(status_of([] { tiled::allocator_set(tiled::allocator()); }) == TILED_STATUS_INVALID_ARGUMENT,
           "an allocator without functions is told");
    expect(status_of([&] { engine.max_pool2d_forward(tiled::pool2d(), in, in); }) != TILED_STATUS_OK,
           "an output over its input is told");
    return failures;
}
