"""onnxruntime and OpenVINO as workers, for inference: `onnx_peers.py onnxruntime`, `onnx_peers.py openvino`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from onnx_model import Builder
from protocol import COMPANIONS, WARM, Json, read_weights, serve


class OnnxPeer(ABC):
    """An engine that runs ONNX models."""

    def load(self, request: Json) -> None:
        image = np.load(request["input"])
        small = np.ascontiguousarray(image[:, :, :WARM, :WARM])
        self.bind(model(request, small.shape, COMPANIONS["inference"]), small, request["threads"])
        self.run()  # warms the code up
        self.bind(model(request, image.shape, "network.onnx"), image, request["threads"])

    @abstractmethod
    def bind(self, model: bytes, image: np.ndarray, threads: int) -> None:
        """Compiles the model for the image and binds input and output."""

    @abstractmethod
    def run(self) -> None:
        """Runs once."""

    def unseen_bytes(self) -> int:
        return 0


def model(request: Json, shape: tuple[int, ...], file: str) -> bytes:
    """The model for images of a shape: this file beside that of the network, or made of its description."""
    network = request["network"]
    if "onnx" in network:
        return Path(network["onnx"]).with_name(file).read_bytes()
    return Builder(network, read_weights(request["weights"]), shape).build()


class OnnxRuntime(OnnxPeer):
    """Times include nothing but the run: input and output are bound before."""

    def __init__(self) -> None:
        import onnxruntime

        self.library = onnxruntime

    def hello(self) -> Json:
        settings = "CPU provider, all graph optimisations, threads spin during a run and stop after it"
        return {"name": "onnxruntime", "version": self.library.__version__, "settings": settings}

    def bind(self, model: bytes, image: np.ndarray, threads: int) -> None:
        options = self.library.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = self.library.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = self.library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        (given,), (wanted,) = self.session.get_inputs(), self.session.get_outputs()
        self.output = np.full(wanted.shape, np.nan, np.float32)
        value = self.library.OrtValue.ortvalue_from_numpy
        self.held = (value(image), value(self.output))
        self.binding = self.session.io_binding()
        self.binding.bind_ortvalue_input(given.name, self.held[0])
        self.binding.bind_ortvalue_output(wanted.name, self.held[1])

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> dict[str, np.ndarray]:
        return {"output": self.held[1].numpy()}


class OpenVino(OnnxPeer):
    def __init__(self) -> None:
        import openvino

        self.library = openvino
        self.core = openvino.Core()

    def hello(self) -> Json:
        settings = "CPU device, latency hint, one stream, f32 precision"
        return {"name": "OpenVINO", "version": self.library.__version__, "settings": settings}

    def bind(self, model: bytes, image: np.ndarray, threads: int) -> None:
        config = {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        compiled = self.core.compile_model(self.core.read_model(model), "CPU", config)
        self.request = compiled.create_infer_request()
        self.output = np.full(compiled.output(0).shape, np.nan, np.float32)
        self.held = [self.library.Tensor(array, shared_memory=True) for array in (image, self.output)]
        self.request.set_input_tensor(self.held[0])
        self.request.set_output_tensor(self.held[1])

    def run(self) -> None:
        self.request.infer()

    def outputs(self) -> dict[str, np.ndarray]:
        return {"output": self.output}


if __name__ == "__main__":
    serve({"onnxruntime": OnnxRuntime, "openvino": OpenVino}[sys.argv[1]])
