"""The worker that runs PyTorch for seed003.py: see protocol.py and crates/tiled/examples/seed_worker.

seed_torch.py contiguous | channels_last | fused | math
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from protocol import answer_lines, peak_rss_bytes
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Json = dict[str, Any]


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.linear1 = nn.Linear(32 * 4 * 4, 64)
        self.linear2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.linear2(F.relu(self.linear1(F.max_pool2d(x, 2).flatten(1))))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 64)
        self.position = nn.Parameter(torch.zeros(1, 16, 64))
        layer = lambda: nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)  # noqa: E731
        self.layers = nn.ModuleList([layer(), layer()])
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        pieces = x.reshape(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4).reshape(-1, 16, 4)
        x = self.embed(pieces) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


def module(kind: str, shape: list[int], form: str) -> nn.Module | None:
    """The module of a case, where it has one."""
    match kind:
        case "linear":
            return nn.Linear(shape[1], shape[2])
        case "conv2d":
            return nn.Conv2d(shape[1], shape[3], 3)
        case "attention":
            return nn.MultiheadAttention(shape[2], shape[3], batch_first=form == "batch first")
        case "cnn":
            return Cnn()
        case "vit":
            return Vit()
        case "encoder":
            return nn.TransformerEncoderLayer(shape[2], shape[3], shape[4], 0.0, batch_first=True)
    return None


def inputs(kind: str, shape: list[int], form: str) -> dict[str, tuple[int, ...]]:
    match kind:
        case "linear":
            return {"x": (shape[0], shape[1])}
        case "conv2d":
            return {"x": (shape[0], shape[1], shape[2], shape[2])}
        case "attention":
            first, second = (shape[1], shape[0]) if form == "batch first" else (shape[0], shape[1])
            return {"x": (first, second, shape[2])}
        case "softmax":
            return {"x": tuple(shape)}
        case "product":
            m, n, k = shape
            return {
                "a": (k, m) if form == "first transposed" else (m, k),
                "b": (n, k) if form == "second transposed" else (k, n),
            }
        case "heads":
            return {name: tuple(shape) for name in "qkv"}
        case "chain":
            return {"x": (1,)}
        case "cnn" | "vit":
            return {"x": (shape[0], 1, 8, 8)}
        case "encoder":
            return {"x": tuple(shape[:3])}
    raise ValueError(f"unknown case `{kind}`")


def write_case(request: Json) -> None:
    """Inputs and parameters, the same for all workers."""
    kind, shape, form = request["kind"], request["shape"], request["form"]
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(4)
    tensors = {name: torch.randn(size, generator=generator) for name, size in inputs(kind, shape, form).items()}
    if kind in ("cnn", "vit"):
        tensors["classes"] = torch.randint(10, (shape[0],), generator=generator).float()
    if (own := module(kind, shape, form)) is not None:
        for name, parameter in own.named_parameters():
            # no parameter that is zero, or its place would not matter
            values = parameter + 0.02 * torch.randn(parameter.shape, generator=generator)
            tensors[f"module.{name}"] = values.detach()
    save_file(tensors, request["tensors"])


class Worker:
    def __init__(self, name: str) -> None:
        self.name = name

    def load(self, request: Json) -> None:
        torch.set_num_threads(request["threads"])
        kind, shape, form = request["kind"], request["shape"], request["form"]
        self.task = request["task"]
        self.output: Tensor | None = None
        self.module = module(kind, shape, form)
        tensors = load_file(request["tensors"])
        last = torch.channels_last if self.name == "channels_last" else torch.contiguous_format
        place = lambda x: x.contiguous(memory_format=last) if x.dim() == 4 else x  # noqa: E731
        self.inputs = {name: place(tensors[name]) for name in inputs(kind, shape, form)}
        for tensor in self.inputs.values():
            tensor.requires_grad_(request["inputs_need"])
        if self.module is not None:
            state = {name.removeprefix("module."): x for name, x in tensors.items() if name.startswith("module.")}
            self.module.load_state_dict(state)
            self.module = self.module.to(memory_format=last)
        self.classes = tensors["classes"].long() if "classes" in tensors else None
        self.forward = self.function(kind, shape, form)
        if kind == "heads":  # loads the code, which is not to count as memory of the run
            small = torch.ones(1, 1, 2, 8, requires_grad=True)
            with sdpa_kernel(self.backend()):
                F.scaled_dot_product_attention(small, small, small).sum().backward()
        if self.task == "step":
            sgd = kind == "cnn"
            make = torch.optim.SGD if sgd else torch.optim.AdamW
            self.optimizer = make(self.module.parameters(), **({"lr": 0.01, "momentum": 0.9} if sgd else {}))

    def function(self, kind: str, shape: list[int], form: str) -> Callable[[], Tensor]:
        x = next(iter(self.inputs.values()))
        match kind:
            case "attention":
                return lambda: self.module(x, x, x, need_weights=form != "batch first")[0]
            case "softmax":
                return lambda: F.softmax(x, -1)
            case "product":
                a, b = self.inputs["a"], self.inputs["b"]
                a = a.T if form == "first transposed" else a
                b = b.T if form == "second transposed" else b
                return lambda: a @ b
            case "heads":
                q, k, v = (self.inputs[name] for name in "qkv")
                backend, attend = self.backend(), F.scaled_dot_product_attention

                def attention() -> Tensor:
                    with sdpa_kernel(backend):
                        return attend(q, k, v, is_causal=form == "causal")

                return attention
            case "chain":
                one = torch.ones(1)

                def chain() -> Tensor:
                    total = x
                    for _ in range(shape[0]):
                        total = total + one
                    return total

                return chain
            case "cnn" | "vit":
                return lambda: F.cross_entropy(self.module(x), self.classes)
            case "encoder":
                return lambda: self.module(x).square().mean()
        return lambda: self.module(x)

    def backend(self) -> SDPBackend:
        return SDPBackend.MATH if self.name == "math" else SDPBackend.FLASH_ATTENTION

    def once(self) -> float:
        self.output = None
        if self.task == "forward":
            with torch.no_grad():
                begin = time.perf_counter()
                self.output = self.forward()
                return time.perf_counter() - begin
        if self.task == "backward":
            output = self.forward()
            begin = time.perf_counter()
            output.sum().backward()
            seconds = time.perf_counter() - begin
        elif self.task == "both":
            begin = time.perf_counter()
            output = self.forward()
            output.sum().backward()
            seconds = time.perf_counter() - begin
        else:
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            output = self.forward()
            output.backward()
            self.optimizer.step()
            seconds = time.perf_counter() - begin
        self.output = output.detach()
        return seconds

    def first(self) -> Json:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
        before = peak_rss_bytes()
        return {"seconds": self.once(), "memory_bytes": max(0, peak_rss_bytes() - before)}

    def save(self, path: str) -> None:
        found = {"output": self.output.contiguous()}
        named = dict(self.inputs) | dict(self.module.named_parameters() if self.module is not None else ())
        for name, tensor in named.items():
            if tensor.grad is not None:
                found[f"grad.{name}"] = tensor.grad.contiguous()
        save_file(found, path)

    def respond(self, request: Json) -> Json:
        match request["command"]:
            case "hello":
                names = {"contiguous": "torch", "channels_last": "torch channels-last"}
                names |= {"fused": "torch, fused", "math": "torch, math"}
                return {"name": names[self.name], "version": torch.__version__, "settings": "set_num_threads"}
            case "write":
                write_case(request)
            case "load":
                self.load(request)
            case "first":
                return self.first()
            case "run":
                enabled = gc.isenabled()
                gc.disable()
                with contextlib.ExitStack() as stack:
                    if enabled:
                        stack.callback(gc.enable)
                    return {"seconds": [self.once() for _ in range(request["repeats"])]}
            case "save":
                self.save(request["path"])
            case other:
                raise ValueError(f"unknown command {other}")
        return {}


if __name__ == "__main__":
    answer_lines(lambda: Worker(sys.argv[1]).respond)
