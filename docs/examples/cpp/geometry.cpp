// A small framework with kernels of its own, which asks for regions and halos alone: two convolutions, tile by tile.
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tiled.hpp"

namespace {

constexpr int64_t H = 45, W = 37;

// The framework's tensor: a region of the whole image in global coordinates.
struct part {
    explicit part(tiled::region r) : held(r), values(static_cast<size_t>((r.rows.end - r.rows.begin) * width())) {}
    int64_t width() const { return held.cols.end - held.cols.begin; }
    float &at(int64_t y, int64_t x) { return values[static_cast<size_t>((y - held.rows.begin) * width() + x - held.cols.begin)]; }
    float at(int64_t y, int64_t x) const { return const_cast<part *>(this)->at(y, x); }

    tiled::region held;
    std::vector<float> values;
};

// The framework's kernel: a 3x3 convolution with padding 1 of one region.
part convolve(const part &from, tiled::region wanted) {
    part to(wanted);
    for (int64_t y = wanted.rows.begin; y < wanted.rows.end; ++y)
        for (int64_t x = wanted.cols.begin; x < wanted.cols.end; ++x) {
            float sum = 0;
            for (int64_t v = y - 1; v <= y + 1; ++v)
                for (int64_t u = x - 1; u <= x + 1; ++u)
                    if (v >= 0 && v < H && u >= 0 && u < W)
                        sum += from.at(v, u) * static_cast<float>(v - y + 2 * (u - x) + 1);
            to.at(y, x) = sum;
        }
    return to;
}

uint64_t hash(const std::vector<float> &values) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(values.data());
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < values.size() * sizeof(float); ++i) h = (h ^ bytes[i]) * 1099511628211u;
    return h;
}

} // namespace

int main() try {
    const tiled::region all{{0, H}, {0, W}};
    part image(all), tiled_result(all);
    for (size_t i = 0; i < image.values.size(); ++i) image.values[i] = static_cast<float>(i % 23) - 11;
    const part whole = convolve(convolve(image, all), all);

    const std::array<tiled::window, 2> window{{{3, 1, 1, 1}, {3, 1, 1, 1}}};
    const auto grid = tiled::grid::from_tile(H, W, 16, 16);
    const auto counts = grid.counts();
    for (int64_t row = 0; row < counts[0]; ++row)
        for (int64_t col = 0; col < counts[1]; ++col) {
            const auto wanted = grid.tile(row, col);
            const auto halo = tiled::receptive(window, wanted, H, W);
            const auto input = tiled::receptive(window, halo, H, W);
            std::printf("geometry [%lld,%lld)x[%lld,%lld)\n", static_cast<long long>(input.rows.begin),
                        static_cast<long long>(input.rows.end), static_cast<long long>(input.cols.begin),
                        static_cast<long long>(input.cols.end));
            part piece(input);
            for (int64_t y = input.rows.begin; y < input.rows.end; ++y)
                for (int64_t x = input.cols.begin; x < input.cols.end; ++x) piece.at(y, x) = image.at(y, x);
            const part out = convolve(convolve(piece, halo), wanted);
            for (int64_t y = wanted.rows.begin; y < wanted.rows.end; ++y)
                for (int64_t x = wanted.cols.begin; x < wanted.cols.end; ++x) tiled_result.at(y, x) = out.at(y, x);
        }
    if (hash(whole.values) != hash(tiled_result.values)) return 1;
    std::printf("geometry %016llx\n", static_cast<unsigned long long>(hash(tiled_result.values)));
    return 0;
} catch (const tiled::error &failure) {
    std::fprintf(stderr, "%s: %s\n", tiled_status_name(failure.status()), failure.what());
    return 1;
}
