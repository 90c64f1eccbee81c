// Devices through the C++ wrapper: the list, an engine on a simulated GPU, and tensors on it, forward and backward.
#include <cstdio>
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

int main() {
    bool simulates = false;
    const auto all = tiled::devices();
    expect(!all.empty() && all.front().name == "cpu" && all.front().is_there(), "the CPU comes first");
    for (const auto &device : all) {
        expect(!device.text.empty(), "a device says what it is, or why it is not there");
        simulates = simulates || (device.name == "cuda-sim:h200" && device.is_there());
    }
    try {
        tiled::engine::on("cuda:77");
        expect(false, "a device that is not there is told");
    } catch (const tiled::error &failure) {
        expect(failure.status() == TILED_STATUS_NO_DEVICE || failure.status() == TILED_STATUS_LEFT_OUT, "by its status");
    }
    if (!simulates) {
        std::puts("skipped: no simulated GPU here");
        return failures;
    }

    const auto engine = tiled::engine::on("cuda-sim:a100");
    expect(engine.name().find("A100, simulated") != std::string::npos, "an engine names its device");
    const auto graph = tiled::graph::builtin("light");
    auto weights = tiled::weights::make<double>(graph, 3);
    auto goal = tiled::objective();
    goal.mode = TILED_MODE_EVAL;
    goal.loss = TILED_LOSS_GRAD_OUTPUT;
    goal.grad_inputs = 1;
    auto options = tiled::plan_options();
    options.tile[0] = options.tile[1] = 3;
    options.hold = TILED_HOLD_RECOMPUTE;
    const tiled::shape in{2, 3, 16, 20}, out{2, 32, 4, 5};
    const auto plan = tiled::plan::make<double>(engine, graph, {in}, goal, options);
    auto executor = tiled::executor::make(engine, plan);
    std::vector<double> image(2 * 3 * 16 * 20), after(2 * 32 * 4 * 5);
    for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<double>(i % 13) / 13 - 0.4;
    for (size_t i = 0; i < after.size(); ++i) after[i] = static_cast<double>(i % 7) / 7;

    std::vector<std::vector<double>> outputs, gradients;
    for (const int32_t where : {TILED_MEMORY_HOST, TILED_MEMORY_CUDA_SIM}) {
        std::vector<double> output(after.size(), -1), gradient(image.size(), -1);
        tiled::io io;
        io.input(tiled::tensor(image.data(), in).on(where)).grad_output(tiled::tensor(after.data(), out).on(where));
        io.output(tiled::tensor(output.data(), out).on(where)).grad_input(tiled::tensor(gradient.data(), in).on(where));
        executor.run(weights, io);
        outputs.push_back(std::move(output));
        gradients.push_back(std::move(gradient));
    }
    expect(outputs[0] == outputs[1] && gradients[0] == gradients[1], "where tensors lie changes no bit");

    auto *managed = tiled::to_dlpack(tiled::tensor(image.data(), in).on(TILED_MEMORY_CUDA_SIM));
    const auto back = tiled::from_dlpack(managed);
    expect(back.value().device_type == TILED_MEMORY_CUDA_SIM && back.value().data == image.data(), "DLPack keeps the device");
    return failures;
}
