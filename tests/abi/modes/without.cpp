// The unit of a program that is compiled without exceptions.
#include <vector>

#include "tiled.hpp"

int without_exceptions();

int without_exceptions() {
    auto missing = tiled::graph::builtin("nothing");
    if (missing || missing.status() != TILED_STATUS_NOT_FOUND || missing.message() != tiled::last_error()) return 11;
    auto found = tiled::graph::builtin("seed-001");
    if (!found) return 12;
    const tiled::graph graph = std::move(found).value();
    auto engine = tiled::take(tiled::engine::make());
    const auto plan = tiled::take(tiled::plan::make<float>(engine, graph, {{1, 1, 16, 16}}));
    auto executor = tiled::take(tiled::executor::make(engine, plan));
    auto weights = tiled::take(tiled::weights::make<float>(graph, 1));
    std::vector<float> out(16);
    size_t read = 0;
    tiled::io io;
    io.input<float>({1, 1, 16, 16}, [&](tiled::region, tiled::block<float> block) {
        for (float &value : block) value = 1;
        read += block.size();
    }, true);
    io.output(tiled::tensor(out.data(), {1, 1, 4, 4}));
    const auto report = executor.run(weights, io);
    if (!report || read < 256) return 13; // halos are read again
    const auto again = executor.run(weights, io.progress([](uint64_t, uint64_t) { return false; }));
    return again.status() == TILED_STATUS_CANCELLED ? 0 : 14;
}
