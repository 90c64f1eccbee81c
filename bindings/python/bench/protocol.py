"""The worker's end of the conversation with peers.py: a JSON request a line in, a JSON answer a line out.

An engine is a class with

    hello() -> dict                    name, version, what was set
    load(request) -> None              reads the network, weights and arrays, and warms the code up on a small image
    run() -> None                      one run
    outputs() -> dict[str, ndarray]    what the last run gave
    unseen_bytes() -> int              bytes of input-sized and output-sized tensors that a run allocates itself
"""

from __future__ import annotations

import gc
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Json = dict[str, Any]
Weights = dict[str, np.ndarray]

WARM = 64  # the rows and columns that warm code up
PART = 256  # those that are compared in float64
# the files beside network.onnx for as many of them
COMPANIONS = {"inference": "small.onnx", "training": "part.onnx"}


class Engine(Protocol):
    def hello(self) -> Json: ...
    def load(self, request: Json) -> None: ...
    def run(self) -> None: ...
    def outputs(self) -> dict[str, np.ndarray]: ...
    def unseen_bytes(self) -> int: ...


def serve(make: Callable[[], Engine]) -> None:
    """Answers requests to an engine until the input ends."""
    answer_lines(lambda: partial(respond, make()))


def answer_lines(make: Callable[[], Callable[[Json], Json]]) -> None:
    """Answers requests by what `make` gives. What libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    respond_to = make()
    for line in sys.stdin:
        try:
            answer = respond_to(json.loads(line))
        except Exception as failure:  # whatever a library raises is an answer, not the end of the comparison
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        print(json.dumps(answer), file=answers, flush=True)


def respond(engine: Engine, request: Json) -> Json:
    match request["command"]:
        case "hello":
            return engine.hello()
        case "load":
            engine.load(request)
            return {}
        case "first":
            return first(engine)
        case "run":
            return {"seconds": [seconds(engine) for _ in range(request["repeats"])]}
        case "save":
            folder = Path(request["folder"])
            folder.mkdir(parents=True, exist_ok=True)
            for name, array in engine.outputs().items():
                np.save(folder / f"{name}.npy", np.ascontiguousarray(array))
            return {}
        case other:
            raise ValueError(f"unknown command {other}")


def seconds(engine: Engine) -> float:
    begin = time.perf_counter()
    engine.run()
    return time.perf_counter() - begin


def first(engine: Engine) -> Json:
    """One run and the memory that it takes beyond what the process held before."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew
    before = peak_rss_bytes()
    taken = seconds(engine)
    memory = peak_rss_bytes() - before - engine.unseen_bytes()
    return {"seconds": taken, "memory_bytes": max(0, memory)}


def peak_rss_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say the peak of resident memory")


def read_weights(path: str) -> Weights:
    """The tensors of a .safetensors file of f32: a length, a JSON header, the elements."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: `{name}` is {entry['dtype']}, not F32")
        begin, end = entry["data_offsets"]
        elements = np.frombuffer(data, "<f4", (end - begin) // 4, 8 + length + begin)
        weights[name] = elements.reshape(entry["shape"]).copy()
    return weights
