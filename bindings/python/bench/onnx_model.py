"""A network of the network format as an ONNX model of fixed sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from protocol import Json, Weights

OPSET = 20
Shape = tuple[int, int, int, int]


class Builder:
    def __init__(self, description: Json, weights: Weights, shape: Shape) -> None:
        self.description = description
        self.nodes: list[onnx.NodeProto] = []
        self.constants = {name: numpy_helper.from_array(array, name) for name, array in weights.items()}
        (entry,) = description["inputs"]
        self.shapes: dict[str, Shape] = {entry["name"]: shape}
        self.input = entry["name"]

    def build(self) -> bytes:
        for node in self.description["nodes"]:
            self.add(node)
        (output,) = self.description["outputs"]
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])  # noqa: E731
        used = {name for node in self.nodes for name in node.input}
        constants = [tensor for name, tensor in self.constants.items() if name in used]
        graph = helper.make_graph(self.nodes, "network", [value(self.input)], [value(output)], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        onnx.checker.check_model(model)
        return model.SerializeToString()

    def emit(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def parameters(self, name: str) -> list[str]:
        names = [f"{name}.weight", f"{name}.bias"]
        return [parameter for parameter in names if parameter in self.constants]

    def add(self, node: Json) -> None:
        name, inputs = node["name"], node["inputs"]
        shape = self.shapes[inputs[0]]
        self.shapes[name] = self.shape_after(node, shape)
        match node["op"]:
            case "conv2d":
                pads, padding_mode = pads_of(node["padding"]), node["padding_mode"]
                if padding_mode != "zeros":
                    (top, left, bottom, right), pads = pads, [0, 0, 0, 0]
                    around = np.array([0, 0, top, left, 0, 0, bottom, right])
                    around_name = self.constant(f"{name}.pads", around)
                    mode = {"reflect": "reflect", "replicate": "edge"}[padding_mode]
                    inputs = [self.emit("Pad", [inputs[0], around_name], f"{name}.padded", mode=mode)]
                self.emit(
                    "Conv",
                    [*inputs, *self.parameters(name)],
                    name,
                    kernel_shape=node["kernel_size"],
                    strides=node["stride"],
                    pads=pads,
                    dilations=node["dilation"],
                    group=node["groups"],
                )
            case "conv_transpose2d":
                self.emit(
                    "ConvTranspose",
                    [*inputs, *self.parameters(name)],
                    name,
                    kernel_shape=node["kernel_size"],
                    strides=node["stride"],
                    pads=pads_of(node["padding"]),
                    output_padding=node["output_padding"],
                    dilations=node["dilation"],
                    group=node["groups"],
                )
            case "max_pool2d" | "avg_pool2d" as op:
                own = (
                    {"dilations": node["dilation"]}
                    if op == "max_pool2d"
                    else {"count_include_pad": int(node["count_include_pad"])}
                )
                self.emit(
                    "MaxPool" if op == "max_pool2d" else "AveragePool",
                    inputs,
                    name,
                    kernel_shape=node["kernel_size"],
                    strides=node["stride"],
                    pads=pads_of(node["padding"]),
                    ceil_mode=int(node["ceil_mode"]),
                    **own,
                )
            case "batch_norm":
                channels = shape[1]
                scale = self.parameters(name) or [
                    self.constant(f"{name}.one", np.ones(channels, np.float32)),
                    self.constant(f"{name}.zero", np.zeros(channels, np.float32)),
                ]
                statistics = [f"{name}.running_mean", f"{name}.running_var"]
                self.emit("BatchNormalization", [*inputs, *scale, *statistics], name, epsilon=node["eps"])
            case "leaky_relu":
                self.emit("LeakyRelu", inputs, name, alpha=node["negative_slope"])
            case "silu":
                self.emit("Mul", [*inputs, self.emit("Sigmoid", inputs, f"{name}.sigmoid")], name)
            case "gelu":
                self.emit("Gelu", inputs, name, approximate=node["approximate"])
            case "relu" | "sigmoid" | "tanh" | "global_avg_pool" | "global_max_pool" as op:
                plain = {"global_avg_pool": "GlobalAveragePool", "global_max_pool": "GlobalMaxPool"}
                self.emit(plain.get(op, op.capitalize()), inputs, name)
            case "add" | "mul" as op:
                left = inputs[0]
                for place, right in enumerate(inputs[1:], 1):
                    is_last = place == len(inputs) - 1
                    left = self.emit(op.capitalize(), [left, right], name if is_last else f"{name}.{place}")
            case "concat":
                self.emit("Concat", inputs, name, axis=1)
            case "upsample":
                sizes = self.constant(f"{name}.sizes", np.array(self.shapes[name]))
                if node["mode"] == "nearest":
                    how = {
                        "mode": "nearest",
                        "nearest_mode": "floor",
                        "coordinate_transformation_mode": "asymmetric",
                    }
                else:
                    corners = "align_corners" if node["align_corners"] else "half_pixel"
                    how = {"mode": "linear", "coordinate_transformation_mode": corners}
                self.emit("Resize", [inputs[0], "", "", sizes], name, **how)
            case "linear":
                flat = self.emit("Flatten", inputs, f"{name}.flat")
                product = self.emit("Gemm", [flat, *self.parameters(name)], f"{name}.product", transB=1)
                after = self.constant(f"{name}.shape", np.array(self.shapes[name]))
                self.emit("Reshape", [product, after], name)
            case "dropout":
                self.emit("Identity", inputs, name)
            case other:
                raise NotImplementedError(other)

    def shape_after(self, node: Json, shape: Shape) -> Shape:
        batch, channels, *extents = shape
        match node["op"]:
            case "conv2d":
                return (batch, node["out_channels"], *windowed(node, extents))
            case "max_pool2d" | "avg_pool2d":
                return (batch, channels, *windowed(node, extents))
            case "conv_transpose2d":
                grown = [
                    (n - 1) * s - 2 * p + d * (k - 1) + more + 1
                    for n, s, p, d, k, more in zip(
                        extents,
                        node["stride"],
                        node["padding"],
                        node["dilation"],
                        node["kernel_size"],
                        node["output_padding"],
                        strict=True,
                    )
                ]
                return (batch, node["out_channels"], *grown)
            case "concat":
                return (batch, sum(self.shapes[name][1] for name in node["inputs"]), *extents)
            case "upsample":
                if "like" in node:
                    return (batch, channels, *self.shapes[node["like"]][2:])
                scaled = [n * f for n, f in zip(extents, node.get("scale_factor", [1, 1]), strict=True)]
                return (batch, channels, *node.get("size", scaled))
            case "global_avg_pool" | "global_max_pool":
                return (batch, channels, 1, 1)
            case "linear":
                return (batch, node["out_features"], 1, 1)
            case _:
                return shape


def pads_of(padding: list[Any]) -> list[int]:
    """Top, left, bottom, right."""
    (top, bottom), (left, right) = [p if isinstance(p, list) else [p, p] for p in padding]
    return [top, left, bottom, right]


def windowed(node: Json, extents: list[int]) -> list[int]:
    top, left, bottom, right = pads_of(node["padding"])
    after = []
    for axis, (extent, (before, behind)) in enumerate(zip(extents, [(top, bottom), (left, right)], strict=True)):
        kernel, stride = node["kernel_size"][axis], node["stride"][axis]
        reach = node.get("dilation", [1, 1])[axis] * (kernel - 1) + 1
        room = extent + before + behind - reach
        count = room // stride + 1
        if node.get("ceil_mode") and room % stride and count * stride < extent + before:
            count += 1
        after.append(count)
    return after
