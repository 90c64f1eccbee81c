"""Networks that the tests write, and what NumPy makes of them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from numpy.typing import NDArray

import tiled

Doubles = NDArray[numpy.float64]

#: A convolution with a stride, its activation, and a pooling whose windows do not divide what it is given.
NET = {
    "inputs": [{"name": "x", "channels": 3}],
    "nodes": [
        {
            "name": "conv",
            "op": "conv2d",
            "inputs": ["x"],
            "out_channels": 5,
            "kernel_size": [3, 5],
            "padding": [1, 2],
            "stride": [2, 1],
        },
        {"name": "relu", "op": "relu", "inputs": ["conv"]},
        {"name": "pool", "op": "max_pool2d", "inputs": ["relu"], "kernel_size": [2, 3]},
    ],
    "outputs": ["pool"],
}


@pytest.fixture
def weights() -> dict[str, NDArray[numpy.float32]]:
    """In the names of PyTorch."""
    chance = numpy.random.default_rng(1)
    weight, bias = chance.standard_normal((5, 3, 3, 5)), chance.standard_normal(5)
    return {"conv.weight": weight.astype(numpy.float32), "conv.bias": bias.astype(numpy.float32)}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(NET))
    return path


@pytest.fixture
def network(net: Path, weights: dict[str, NDArray[numpy.float32]]) -> tiled.Network:
    return tiled.Network(net, weights)


@pytest.fixture
def expected(weights: dict[str, NDArray[numpy.float32]]) -> Callable[[NDArray[numpy.generic]], Doubles]:
    """What the network computes of N×C×H×W, in `float64`, by its definition."""

    def compute(image: NDArray[numpy.generic]) -> Doubles:
        weight, bias = (weights[name].astype(numpy.float64) for name in ("conv.weight", "conv.bias"))
        padded = numpy.pad(image.astype(numpy.float64), ((0, 0), (0, 0), (1, 1), (2, 2)))
        windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 5), (2, 3))[:, :, ::2]
        sums = numpy.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]
        pooled = numpy.lib.stride_tricks.sliding_window_view(numpy.maximum(sums, 0), (2, 3), (2, 3))[:, :, ::2, ::3]
        return pooled.max((4, 5))

    return compute


@pytest.fixture
def image() -> NDArray[numpy.float32]:
    """Two images whose extents nothing divides."""
    return numpy.random.default_rng(2).standard_normal((2, 3, 61, 83)).astype(numpy.float32)
