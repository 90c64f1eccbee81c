"""Networks and weights: where they come from, and what they say of themselves."""

import json

import numpy
import pytest

import tiled


def test_a_network_says_what_it_reads_and_makes(network):
    assert network.inputs == {"x": 3} and network.outputs == ["pool"]
    assert network.parameters == {"conv.weight": (5, 3, 3, 5), "conv.bias": (5,)}
    assert network.output_shapes((2, 3, 61, 83)) == [(2, 5, 15, 27)]
    assert network.output_shapes((3, 61, 83)) == [(1, 5, 15, 27)]
    assert network.output_shapes((61, 83, 3), axes="HWC") == [(1, 5, 15, 27)]
    assert '"conv2d"' in network.to_json() and "x to pool" in repr(network)


def test_networks_and_weights_that_there_are_not_are_refused(net, weights, tmp_path):
    with pytest.raises(tiled.NetworkError, match="unknown network `lihgt`: built in are"):
        tiled.Network("lihgt")
    with pytest.raises(tiled.NetworkError):
        tiled.Network(tmp_path / "none.onnx")
    (tmp_path / "torn.json").write_text('{"inputs": [')
    with pytest.raises(tiled.NetworkError, match="torn.json"):
        tiled.Network(tmp_path / "torn.json")
    image = numpy.zeros((1, 3, 20, 20), numpy.float32)
    with pytest.raises(tiled.Error, match="has no weights of its own"):
        tiled.Network(net).run(image)
    with pytest.raises(tiled.NetworkError, match="conv.bias"):
        tiled.Network(net, {"conv.weight": weights["conv.weight"]})
    with pytest.raises(tiled.NetworkError, match="conv.weight.*5.*3"):
        tiled.Network(net, {**weights, "conv.weight": weights["conv.weight"][..., :3]})
    with pytest.raises(tiled.Error, match="whole number"):
        tiled.Network(net, "random:x")


def test_random_weights_are_those_of_the_seed(net):
    image = numpy.ones((3, 30, 40), numpy.float32)
    first, second, other = (tiled.Network(net, f"random:{seed}").run(image) for seed in (1, 1, 2))
    assert (first == second).all() and (first != other).any()


def test_weights_of_64_bits_stay_so(net, weights, image, expected):
    exact = {name: weight.astype(numpy.float64) for name, weight in weights.items()}
    near = tiled.Network(net, exact).run(image, dtype="float64")
    assert numpy.abs(near - expected(image)).max() <= 1e-13 * numpy.abs(near).max()


def test_weights_beyond_the_type_of_a_run_are_refused(net, weights, image):
    weights["conv.weight"] = weights["conv.weight"].astype(numpy.float64)
    weights["conv.weight"][1, 2] = 1e300
    network = tiled.Network(net, weights)
    with pytest.raises(tiled.Error, match="15 of 225 values of weight conv.weight are finite and beyond float32"):
        network.run(image)
    assert numpy.isfinite(network.run(image, dtype="float64")).all()


def test_weights_that_are_held_are_in_the_memory_of_a_plan(tmp_path, weights):
    conv = {"name": "y", "op": "conv2d", "inputs": ["x"], "out_channels": 500, "kernel_size": 5, "padding": 2}
    net = {"inputs": [{"name": "x", "channels": 20}], "nodes": [conv], "outputs": ["y"]}
    (tmp_path / "net.json").write_text(json.dumps(net))
    weight = numpy.zeros((500, 20, 5, 5), numpy.float32)
    named = {"y.weight": weight, "y.bias": numpy.zeros(500, numpy.float32)}
    peak = tiled.Network(tmp_path / "net.json", "random:1").plan((20, 30, 30), threads=1).peak_bytes
    held = tiled.Network(tmp_path / "net.json", named).plan((20, 30, 30), threads=1).peak_bytes
    assert held == peak + weight.nbytes + 2000


def test_convolutions_of_one_value_are_merged(tmp_path):
    conv = {"op": "conv2d", "inputs": ["x"], "out_channels": 4}
    nodes = [
        {"name": "three", **conv, "kernel_size": 3, "padding": 1},
        {"name": "one", **conv, "kernel_size": 1},
        {"name": "norm", "op": "batch_norm", "inputs": ["one"]},
        {"name": "sum", "op": "add", "inputs": ["three", "norm"]},
        {"name": "relu", "op": "relu", "inputs": ["sum"]},
    ]
    net = {"inputs": [{"name": "x", "channels": 3}], "nodes": nodes, "outputs": ["relu"]}
    (tmp_path / "net.json").write_text(json.dumps(net))
    network = tiled.Network(tmp_path / "net.json", "random:1")
    merged = network.merged()
    assert merged.parameters == {"sum.weight": (4, 3, 3, 3), "sum.bias": (4,)}
    assert merged.outputs == network.outputs and len(network.parameters) == 8
    image = numpy.random.default_rng(2).random((3, 41, 29))
    want, got = network.run(image, dtype="float64"), merged.run(image, dtype="float64")
    assert numpy.abs(got - want).max() <= 1e-13 * numpy.abs(want).max()
    assert numpy.abs(merged.run(image.astype(numpy.float32)) - want).max() <= 1e-6 * numpy.abs(want).max()


def test_built_in_networks_are_listed():
    assert {"light", "vgg16", "unet"} <= set(tiled.builtin_names())
    for name in tiled.builtin_names():
        assert tiled.Network(name).inputs


def field(number, payload):
    """A field of a message of protobuf, of bytes or of a number."""
    if isinstance(payload, int):
        return bytes([number << 3]) + varint(payload)
    return bytes([number << 3 | 2]) + varint(len(payload)) + payload


def varint(value):
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def model(height, width):
    """A model of one ReLU that declares this size."""
    extents = b"".join(field(1, field(1, extent)) for extent in (1, 3, height, width))
    of = field(1, field(1, 1) + field(2, extents))
    value = lambda name: field(1, name) + field(2, of)  # noqa: E731
    node = field(1, b"x") + field(2, b"y") + field(4, b"Relu")
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


def test_a_model_of_onnx_runs_and_tells_of_another_size(tmp_path):
    (tmp_path / "relu.onnx").write_bytes(model(8, 10))
    network = tiled.Network(tmp_path / "relu.onnx")
    image = numpy.linspace(-1, 1, 3 * 8 * 10, dtype=numpy.float32).reshape(1, 3, 8, 10)
    assert (network.run(image) == numpy.maximum(image, 0)).all()
    with pytest.warns(UserWarning, match="input `x` is 6×10, the model declares 8×10"):
        network.run(image[:, :, :6])
    (tmp_path / "lost.onnx").write_bytes(model(8, 10).replace(b"Relu", b"LRel"))
    with pytest.raises(tiled.NetworkError, match="LRel"):
        tiled.Network(tmp_path / "lost.onnx")
