// A network over an image that one lambda reads and another writes, within a memory budget.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tiled.hpp"

namespace {

float number(uint32_t i) { return static_cast<float>((i * 2654435761u) >> 8) / 16777216.0f - 0.5f; }

uint64_t hash(const std::vector<float> &values) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(values.data());
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < values.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

} // namespace

int main() try {
    constexpr int64_t C = 3, H = 192, W = 160, O = 32, OH = H / 4, OW = W / 4;
    std::vector<float> result(O * OH * OW);
    auto threads = tiled::engine_options();
    threads.threads = 2;
    auto options = tiled::plan_options();
    options.memory_bytes = 8 << 20;

    const auto engine = tiled::engine::make(threads);
    const auto graph = tiled::graph::builtin("light");
    auto weights = tiled::weights::make<float>(graph, 7);
    const auto plan = tiled::plan::make<float>(engine, graph, {{1, C, H, W}}, tiled::objective(), options);
    std::fprintf(stderr, "peak of %llu bytes\n", static_cast<unsigned long long>(plan.summarise().peak_bytes));
    auto executor = tiled::executor::make(engine, plan);

    tiled::io io;
    io.input<float>({1, C, H, W}, [](tiled::region region, tiled::block<float> block) {
        float *to = block.data();
        for (int64_t c = 0; c < C; ++c)
            for (int64_t y = region.rows.begin; y < region.rows.end; ++y)
                for (int64_t x = region.cols.begin; x < region.cols.end; ++x)
                    *to++ = number(static_cast<uint32_t>((c * H + y) * W + x));
    });
    io.output<float>({1, O, OH, OW}, [&](tiled::region region, tiled::block<const float> block) {
        for (int64_t c = 0; c < O; ++c)
            for (int64_t y = region.rows.begin; y < region.rows.end; ++y)
                for (int64_t x = region.cols.begin; x < region.cols.end; ++x)
                    result[static_cast<size_t>((c * OH + y) * OW + x)] =
                        block(0, c, y - region.rows.begin, x - region.cols.begin);
    });
    executor.run(weights, io);

    std::printf("stream %016llx\n", static_cast<unsigned long long>(hash(result)));
    return 0;
} catch (const tiled::error &failure) {
    std::fprintf(stderr, "%s: %s\n", tiled_status_name(failure.status()), failure.what());
    return 1;
}
