// Two training steps of a network that is built node by node.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tiled.hpp"

namespace {

std::vector<double> numbers(size_t count, uint32_t seed) {
    std::vector<double> values(count);
    for (size_t i = 0; i < count; ++i)
        values[i] = static_cast<double>(((static_cast<uint32_t>(i) + seed) * 2654435761u) >> 8) / 16777216.0 - 0.5;
    return values;
}

uint64_t bits(double value) {
    uint64_t b;
    std::memcpy(&b, &value, sizeof b);
    return b;
}

} // namespace

int main() try {
    constexpr int64_t C = 3, H = 40, W = 56;
    const auto x = numbers(C * H * W, 0), t = numbers(H * W, 500000);

    auto graph = tiled::graph::make();
    const auto input = graph.add_input("x", C);
    const auto c1 = graph.add_node("c1", "conv2d", R"({"out_channels": 4, "kernel_size": 3, "padding": 1})", {input});
    const auto r1 = graph.add_node("r1", "relu", "", {c1});
    const auto c2 = graph.add_node("c2", "conv2d", R"({"out_channels": 1, "kernel_size": 3, "padding": 1})", {r1});
    graph.set_outputs({c2});

    auto threads = tiled::engine_options();
    threads.threads = 2;
    auto objective = tiled::objective();
    objective.mode = TILED_MODE_TRAIN;
    objective.loss = TILED_LOSS_MEAN_SQUARED_ERROR;
    objective.outputs = 0;
    objective.grad_params = 1;
    auto options = tiled::plan_options();
    options.hold = TILED_HOLD_SLIDE;
    options.tile[0] = 4;
    options.tile[1] = 16;
    auto sgd = tiled::optimizer();
    sgd.learning_rate = 0.1;
    sgd.momentum = 0.9;

    const auto engine = tiled::engine::make(threads);
    auto weights = tiled::weights::make<double>(graph, 3);
    const auto plan = tiled::plan::make<double>(engine, graph, {{1, C, H, W}}, objective, options);
    auto trainer = tiled::trainer::make(engine, plan, sgd);
    tiled::io io;
    io.input(tiled::tensor(x.data(), {1, C, H, W})).target(tiled::tensor(t.data(), {1, 1, H, W}));
    for (int step = 0; step < 2; ++step)
        std::printf("train loss %016" PRIx64 "\n", bits(trainer.step(weights, io).loss));

    std::vector<double> bias(4);
    weights.read(weights.find("c1.bias"), bias.data(), bias.size());
    for (const double value : bias) std::printf("train bias %016" PRIx64 "\n", bits(value));
    return 0;
} catch (const tiled::error &failure) {
    std::fprintf(stderr, "%s: %s\n", tiled_status_name(failure.status()), failure.what());
    return 1;
}
