// A tiled convolution with ReLU and a 2x2 maximum pooling, on memory of the caller.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tiled.hpp"

namespace {

// Numbers that are exact in float and the same in every language.
float number(uint32_t i) { return static_cast<float>((i * 2654435761u) >> 8) / 16777216.0f - 0.5f; }

std::vector<float> numbers(size_t count, uint32_t seed) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = number(static_cast<uint32_t>(i) + seed);
    return values;
}

// FNV-1a over the bits, so that two runs can be compared.
uint64_t hash(const std::vector<float> &values) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(values.data());
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < values.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

} // namespace

int main() try {
    constexpr int64_t C = 3, O = 8, H = 61, W = 53;
    const auto x = numbers(C * H * W, 1), weight = numbers(O * C * 9, 100000), bias = numbers(O, 200000);
    std::vector<float> features(O * H * W), pooled(O * (H / 2) * (W / 2));
    const tiled::tensor b(bias.data(), {1, O, 1, 1}), middle(features.data(), {1, O, H, W});

    auto conv = tiled::conv2d();
    conv.activation = TILED_ACTIVATION_RELU;
    for (const int axis : {0, 1}) conv.padding_before[axis] = conv.padding_after[axis] = 1;
    auto options = tiled::operator_options();
    options.tile[0] = options.tile[1] = 16;

    auto engine = tiled::engine::make();
    engine.conv2d_forward(conv, tiled::tensor(x.data(), {1, C, H, W}), tiled::tensor(weight.data(), {O, C, 3, 3}), &b,
                          middle, options);
    engine.max_pool2d_forward(tiled::pool2d(), middle, tiled::tensor(pooled.data(), {1, O, H / 2, W / 2}), options);

    std::printf("conv_pool %016llx\n", static_cast<unsigned long long>(hash(pooled)));
    return 0;
} catch (const tiled::error &failure) {
    std::fprintf(stderr, "%s: %s\n", tiled_status_name(failure.status()), failure.what());
    return 1;
}
