// Runs the operator through torch's dispatcher beside torch's own operators: largest difference and memory of both.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

// The process's resident bytes, now and at their highest since the last reset.
long long resident(const char *key) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind(key, 0) == 0) return std::atoll(line.c_str() + line.find(':') + 1) * 1024;
    return 0;
}

// The bytes that a computation adds to what was resident before it.
template <class Body> long long added_bytes(Body &&body) {
    std::ofstream("/proc/self/clear_refs") << 5;
    const long long before = resident("VmRSS");
    body();
    return resident("VmHWM") - before;
}

} // namespace

int main(int argc, char **argv) {
    const c10::InferenceMode no_gradients;
    const int64_t size = argc > 1 ? std::atoll(argv[1]) : 1024, budget = 32 << 20;
    at::manual_seed(1);
    const at::Tensor input = at::rand({1, 3, size, size});
    std::vector<at::Tensor> weights, biases;
    for (const auto &[from, to] : {std::pair{3, 32}, {32, 32}, {32, 32}}) {
        weights.push_back(at::randn({to, from, 3, 3}) * 0.1);
        biases.push_back(at::randn({to}) * 0.1);
    }
    const auto op = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("tiled::conv_chain", "")
                        .typed<at::Tensor(const at::Tensor &, at::TensorList, at::TensorList, int64_t)>();
    op.call(input.slice(2, 0, 64).slice(3, 0, 64), weights, biases, budget); // threads and code are there before measuring

    at::Tensor ours, theirs;
    const long long our_bytes = added_bytes([&] { ours = op.call(input, weights, biases, budget); });
    const long long their_bytes = added_bytes([&] {
        at::Tensor x = input;
        for (size_t i = 0; i < weights.size(); ++i) x = at::relu(at::conv2d(x, weights[i], biases[i], 1, 1));
        theirs = at::max_pool2d(x, {2, 2});
    });
    const double difference = (ours - theirs).abs().max().item<double>();
    std::printf("image %lldx%lld, largest difference %.3g, memory: tiled %.1f MiB, torch %.1f MiB (output %.1f MiB)\n",
                static_cast<long long>(size), static_cast<long long>(size), difference, our_bytes / 1048576.0,
                their_bytes / 1048576.0, ours.nbytes() / 1048576.0);
    return difference <= 1e-5 ? 0 : 1;
}
