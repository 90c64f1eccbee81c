// A training step whose numbers leave the finite ones is a status, and changes no parameter.
#include <cmath>
#include <string>
#include <vector>

#include "tiled.hpp"

static std::vector<float> values(const tiled::weights &weights) {
    std::vector<float> all;
    for (size_t place = 0; place < weights.count(); ++place) {
        const auto extents = weights.shape_of(place);
        std::vector<float> one(static_cast<size_t>(extents[0] * extents[1] * extents[2] * extents[3]));
        weights.read(place, one.data(), one.size());
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

int main() {
    const auto graph = tiled::graph::builtin("seed-001");
    auto engine = tiled::engine::make();
    auto objective = tiled::objective();
    objective.mode = TILED_MODE_TRAIN;
    objective.loss = TILED_LOSS_MEAN_SQUARED_ERROR;
    objective.outputs = 0;
    objective.grad_params = 1;
    const auto plan = tiled::plan::make<float>(engine, graph, {{1, 1, 16, 16}}, objective);
    auto sgd = tiled::optimizer();
    sgd.learning_rate = 1e300;
    auto trainer = tiled::trainer::make(engine, plan, sgd);
    auto weights = tiled::weights::make<float>(graph, 1);
    std::vector<float> image(256, 1.0F), target(16, 0.5F);
    tiled::io io;
    io.input(tiled::tensor(image.data(), {1, 1, 16, 16})).target(tiled::tensor(target.data(), {1, 1, 4, 4}));
    const auto before = values(weights);
    for (const float pixel : {1.0F, NAN}) {
        image[7] = pixel;
        try {
            trainer.step(weights, io);
            return 1;
        } catch (const tiled::error &failure) {
            if (failure.status() != TILED_STATUS_NOT_FINITE) return 2;
            if (std::string(failure.what()).find("training step 1: ") != 0) return 3;
        }
        if (values(weights) != before) return 4;
    }
    if (tiled::status_name(TILED_STATUS_NOT_FINITE) != "TILED_STATUS_NOT_FINITE") return 5;
    trainer.set_learning_rate(0.01);
    image[7] = 1.0F;
    return std::isfinite(trainer.step(weights, io).loss) && values(weights) != before ? 0 : 6;
}
