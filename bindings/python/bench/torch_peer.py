"""PyTorch as a worker: `torch_peer.py contiguous`, `torch_peer.py channels_last`, or as a reference `torch_peer.py float64`
and `float64_channels_last`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from protocol import WARM, Json, Weights, read_weights, serve

# Operators whose gradient does not read their own output: a relu after them may overwrite it.
FORGETFUL = {"conv2d", "conv_transpose2d", "batch_norm", "add", "linear", "upsample", "avg_pool2d"}


class Network(torch.nn.Module):
    """A network of the network format as a module. Values are dropped after their last use, and activations
    work in place where they may, as models written by hand do."""

    def __init__(self, description: Json, weights: Weights) -> None:
        super().__init__()
        self.inputs = [entry["name"] for entry in description["inputs"]]
        self.nodes: list[Json] = description["nodes"]
        (self.output,) = description["outputs"]
        for name, array in weights.items():
            tensor = torch.from_numpy(array)
            if name.endswith((".running_mean", ".running_var")):
                self.register_buffer(flat(name), tensor)
            else:
                self.register_parameter(flat(name), torch.nn.Parameter(tensor))
        uses: dict[str, list[int]] = {}
        for place, node in enumerate(self.nodes):
            for name in reads(node):
                uses.setdefault(name, []).append(place)
        ops = {node["name"]: node["op"] for node in self.nodes}
        self.last_use = {name: places[-1] for name, places in uses.items() if name != self.output}
        self.in_place = {
            node["name"]
            for node in self.nodes
            if node["op"] in ("relu", "leaky_relu")
            and ops.get(node["inputs"][0]) in FORGETFUL
            and len(uses[node["inputs"][0]]) == 1
        }

    def forward(self, *inputs: Tensor) -> Tensor:
        values = dict(zip(self.inputs, inputs, strict=True))
        del inputs
        for place, node in enumerate(self.nodes):
            values[node["name"]] = self.apply(node, [values[name] for name in node["inputs"]], values)
            for name in set(reads(node)):
                if self.last_use.get(name) == place:
                    del values[name]
        return values[self.output]

    def parameter(self, node: Json, kind: str) -> Tensor | None:
        return getattr(self, flat(f"{node['name']}.{kind}"), None)

    def apply(self, node: Json, x: list[Tensor], values: dict[str, Tensor]) -> Tensor:
        weight, bias = self.parameter(node, "weight"), self.parameter(node, "bias")
        match node["op"]:
            case "conv2d":
                padding = node["padding"]
                mode = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate"}[node["padding_mode"]]
                if mode != "constant" or isinstance(padding[0], list):
                    (top, bottom), (left, right) = [p if isinstance(p, list) else [p, p] for p in padding]
                    x, padding = [F.pad(x[0], (left, right, top, bottom), mode)], [0, 0]
                return F.conv2d(x[0], weight, bias, node["stride"], padding, node["dilation"], node["groups"])
            case "conv_transpose2d":
                sizes = [node[key] for key in ("stride", "padding", "output_padding", "groups", "dilation")]
                return F.conv_transpose2d(x[0], weight, bias, *sizes)
            case "max_pool2d":
                sizes = [node[key] for key in ("kernel_size", "stride", "padding", "dilation", "ceil_mode")]
                return F.max_pool2d(x[0], *sizes)
            case "avg_pool2d":
                sizes = [node[key] for key in ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")]
                return F.avg_pool2d(x[0], *sizes)
            case "batch_norm":
                mean, var = self.parameter(node, "running_mean"), self.parameter(node, "running_var")
                return F.batch_norm(x[0], mean, var, weight, bias, self.training, node["momentum"], node["eps"])
            case "relu":
                return F.relu(x[0], inplace=node["name"] in self.in_place)
            case "leaky_relu":
                return F.leaky_relu(x[0], node["negative_slope"], inplace=node["name"] in self.in_place)
            case "sigmoid" | "tanh":
                return getattr(torch, node["op"])(x[0])
            case "silu":
                return F.silu(x[0])
            case "gelu":
                return F.gelu(x[0], approximate=node["approximate"])
            case "add":
                return sum(x[2:], x[0] + x[1])
            case "mul":
                product = x[0]
                for factor in x[1:]:
                    product = product * factor
                return product
            case "concat":
                return torch.cat(x, dim=1)
            case "upsample":
                return F.interpolate(x[0], **target(node, values), mode=node["mode"], align_corners=corners(node))
            case "global_avg_pool":
                return F.adaptive_avg_pool2d(x[0], 1)
            case "global_max_pool":
                return F.adaptive_max_pool2d(x[0], 1)
            case "linear":
                return F.linear(x[0].flatten(1), weight, bias)[:, :, None, None]
            case "dropout":
                return F.dropout(x[0], node["p"], self.training)
            case other:
                raise NotImplementedError(other)


def network(request: Json) -> torch.nn.Module:
    """The module of a description with its weights, or a model of PyTorch, in training where gradients are wanted."""
    given = request["network"]
    if "model" in given:
        import exported

        return exported.load(given["model"], Path(given["onnx"]).with_name("weights.pt"), request["task"])
    return Network(given, read_weights(request["weights"])).train(request["task"] != "inference")


def flat(name: str) -> str:
    return name.replace(".", "__")


def reads(node: Json) -> list[str]:
    return [*node["inputs"], *([node["like"]] if "like" in node else [])]


def target(node: Json, values: dict[str, Tensor]) -> dict[str, Any]:
    if "like" in node:
        return {"size": values[node["like"]].shape[2:]}
    return {key: node[key] for key in ("size", "scale_factor") if key in node}


def corners(node: Json) -> bool | None:
    return node["align_corners"] if node["mode"] == "bilinear" else None


NAMES = {
    "contiguous": "torch NCHW",
    "channels_last": "torch channels-last",
    "float64": "torch float64",
    "float64_channels_last": "torch float64, channels-last",
}


class Torch:
    def __init__(self, layout: str) -> None:
        self.format = torch.channels_last if layout.endswith("channels_last") else torch.contiguous_format
        self.dtype = torch.float64 if layout.startswith("float64") else torch.float32
        self.name = NAMES[layout]

    def hello(self) -> Json:
        return {
            "name": self.name,
            "version": torch.__version__,
            "settings": "set_num_threads; inference_mode",
        }

    def load(self, request: Json) -> None:
        torch.set_num_threads(request["threads"])
        self.task = request["task"]
        self.network = network(request)
        if self.dtype == torch.float64 and "model" in request["network"]:
            import exported

            exported.make_exact(self.network)
        self.network = self.network.to(dtype=self.dtype, memory_format=self.format)
        self.input = self.read(request["input"])
        statistics = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        image, self.input = self.input, self.input[:, :, :WARM, :WARM].contiguous(memory_format=self.format)
        self.output = self.grad_output = None
        self.prepare()
        if self.task == "backward":
            self.grad_output = torch.ones_like(self.output)
        self.run()  # warms the code up
        self.input, self.grad_output = image, None
        for name, buffer in self.network.named_buffers():
            buffer.copy_(statistics[name])
        if "grad_output" in request:
            self.grad_output = self.read(request["grad_output"])
        self.prepare()

    def read(self, path: str) -> Tensor:
        return torch.from_numpy(np.load(path)).to(self.dtype).contiguous(memory_format=self.format)

    def prepare(self) -> None:
        """For the gradients alone, the output is computed before."""
        self.output = None
        self.input.requires_grad_(self.task != "inference")
        if self.task == "backward":
            self.output = self.network(self.input)

    def run(self) -> None:
        if self.task == "inference":
            self.output = None
            with torch.inference_mode():
                self.output = self.network(self.input)
            return
        self.input.grad = None
        self.network.zero_grad(set_to_none=True)
        if self.task == "training":
            self.output = None
            output = self.network(self.input)
            output.sum().backward()
            self.output = output.detach()
        else:
            self.output.backward(self.grad_output, retain_graph=True)

    def outputs(self) -> dict[str, np.ndarray]:
        found = {}
        if self.task != "backward":
            found["output"] = self.output.detach().numpy()
        if self.task != "inference":
            found["grad_input"] = self.input.grad.numpy()
            for name, parameter in self.network.named_parameters():
                found[f"grad.{name.replace('__', '.')}"] = parameter.grad.numpy()
        return found

    def unseen_bytes(self) -> int:
        bytes_of = lambda tensor: tensor.numel() * tensor.element_size()  # noqa: E731
        output = 0 if self.task == "backward" else bytes_of(self.output)
        return output + (0 if self.task == "inference" else bytes_of(self.input))


if __name__ == "__main__":
    serve(lambda: Torch(sys.argv[1]))
