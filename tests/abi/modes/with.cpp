// The unit of a program that is compiled with exceptions.
#include <stdexcept>
#include <string>
#include <vector>

#include "tiled.hpp"

int with_exceptions();

int with_exceptions() {
    try {
        tiled::graph::builtin("nothing");
        return 1;
    } catch (const tiled::error &failure) {
        if (failure.status() != TILED_STATUS_NOT_FOUND || failure.what() != tiled::last_error()) return 2;
    }
    const auto graph = tiled::graph::builtin("seed-001");
    auto engine = tiled::engine::make();
    const auto plan = tiled::plan::make<float>(engine, graph, {{1, 1, 16, 16}});
    auto executor = tiled::executor::make(engine, plan);
    auto weights = tiled::weights::make<float>(graph, 1);
    std::vector<float> out(16);
    tiled::io io;
    io.input<float>({1, 1, 16, 16}, [](tiled::region, tiled::block<float>) { throw std::runtime_error("no disk"); });
    io.output(tiled::tensor(out.data(), {1, 1, 4, 4}));
    try {
        executor.run(weights, io);
        return 3;
    } catch (const std::runtime_error &failure) {
        if (std::string(failure.what()) != "no disk") return 4;
    }
    return 0;
}
