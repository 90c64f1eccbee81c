// `tiled::conv_chain`: 3x3 convolutions with ReLU and a 2x2 maximum pooling at the end, within a memory budget.
//
// Tensors go both ways without a copy: the operator reads and writes torch's own memory.
#include <torch/library.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "tiled.hpp"

namespace {

tiled::shape shape_of(const at::Tensor &t) { return {t.size(0), t.size(1), t.size(2), t.size(3)}; }

tiled::tensor describe(const at::Tensor &t) {
    return {t.data_ptr<float>(), shape_of(t), {t.stride(0), t.stride(1), t.stride(2), t.stride(3)}};
}

at::Tensor conv_chain(const at::Tensor &input, at::TensorList weights, at::TensorList biases, int64_t memory_bytes) {
    TORCH_CHECK(input.device().is_cpu() && input.scalar_type() == at::kFloat && input.dim() == 4, "input: float NCHW on the CPU");
    TORCH_CHECK(weights.size() == biases.size() && !weights.empty(), "a weight and a bias for each convolution");
    try {
        auto graph = tiled::graph::make();
        tiled_value value = graph.add_input("x", input.size(1));
        for (size_t i = 0; i < weights.size(); ++i) {
            const auto name = std::to_string(i);
            value = graph.add_node("conv" + name, "conv2d",
                                   R"({"kernel_size": 3, "padding": 1, "out_channels": )" + std::to_string(weights[i].size(0)) + "}",
                                   {value});
            value = graph.add_node("relu" + name, "relu", "", {value});
        }
        value = graph.add_node("pool", "max_pool2d", R"({"kernel_size": 2})", {value});
        graph.set_outputs({value});

        auto params = tiled::weights::make<float>(graph, 0);
        for (size_t i = 0; i < weights.size(); ++i) {
            const at::Tensor w = weights[i].contiguous(), b = biases[i].contiguous();
            const auto name = "conv" + std::to_string(i);
            params.set(params.find(name + ".weight"), w.data_ptr<float>(), static_cast<size_t>(w.numel()));
            params.set(params.find(name + ".bias"), b.data_ptr<float>(), static_cast<size_t>(b.numel()));
        }

        const auto engine = tiled::engine::make();
        auto options = tiled::plan_options();
        options.memory_bytes = static_cast<uint64_t>(memory_bytes);
        const auto plan = tiled::plan::make<float>(engine, graph, {shape_of(input)}, tiled::objective(), options);
        const auto out_shape = graph.shape_of(value, {shape_of(input)});
        const at::Tensor output = at::empty(at::IntArrayRef(out_shape.data(), out_shape.size()), input.options());
        tiled::io io;
        io.input(describe(input)).output(describe(output));
        tiled::executor::make(engine, plan).run(params, io);
        return output;
    } catch (const tiled::error &failure) {
        TORCH_CHECK(false, tiled_status_name(failure.status()), ": ", failure.what());
    }
}

} // namespace

TORCH_LIBRARY(tiled, m) { m.def("conv_chain(Tensor input, Tensor[] weights, Tensor[] biases, int memory_bytes) -> Tensor"); }
TORCH_LIBRARY_IMPL(tiled, CPU, m) { m.impl("conv_chain", &conv_chain); }
