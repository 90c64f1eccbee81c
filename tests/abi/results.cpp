// The C++ wrapper without exceptions: results are tested and taken.
#include "tiled.hpp"

int main() {
    auto missing = tiled::graph::builtin("nothing");
    if (missing || missing.status() != TILED_STATUS_NOT_FOUND || missing.message().empty()) return 1;
    auto found = tiled::graph::builtin("light");
    if (!found) return 2;
    const tiled::graph graph = std::move(found).value();
    auto shape = graph.shape_of(tiled::take(graph.value("conv1")), {{1, 3, 32, 32}});
    if (!shape || shape.value()[1] != 16) return 3;
    auto engine = tiled::take(tiled::engine::make());
    float x[16] = {}, y[4] = {};
    const tiled::tensor in(x, {1, 1, 4, 4}), out(y, {1, 1, 2, 2});
    if (!engine.max_pool2d_forward(tiled::pool2d(), in, out)) return 4;
    if (engine.max_pool2d_forward(tiled::pool2d(), out, in)) return 5;
    return 0;
}
