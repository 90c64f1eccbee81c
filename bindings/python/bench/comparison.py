"""One workload: its files, its workers, their turns."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from protocol import COMPANIONS, PART
from workloads import TILED, WINOGRAD, Engine, Model, Workload

HERE = Path(__file__).resolve().parent
SCRIPTS = {"torch": "torch_peer.py", "onnxruntime": "onnx_peers.py", "openvino": "onnx_peers.py"}
TORCH_SCRIPT = [sys.executable, str(HERE / SCRIPTS["torch"])]
REFERENCE = "torch NCHW"
ARBITER = "torch float64"
TOLERANCES = {"output": 1e-4, "gradient": 1e-2}
DOUBLE = 1e-9  # of float64
SMALL = 1e-6  # of the largest gradient: what is smaller is compared by that
ROUNDINGS = 2.0  # times what PyTorch's own layouts in float32 deviate
PAUSE_SECONDS = 0.05  # until the threads of the last engine sleep
SMALLEST = 32  # the extents that shrinking leaves
QUIET = 0.05  # the share of the machine that other programs may take
AT_ONCE = 1 << 22  # elements that are compared at a time, which keeps memory small
UNCOUNTED = 6 << 20  # stacks of threads, the plan and what the search for it took
FREE = 0.6  # the share of the memory that is left for the next engine, or all take turns in it
TURN_SECONDS = 0.2  # shorter runs are repeated within a turn

Json = dict[str, Any]


class Worker:
    """A process that answers requests."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=os.environ | environment)

    def ask(self, command: str, **request: Any) -> Json:
        try:
            print(json.dumps({"command": command, **request}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the worker ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def stop(self) -> None:
        """Ends the process, if it has not ended."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Comparison:
    def __init__(
        self,
        workload: Workload,
        program: Path,
        folder: Path,
        *,
        models: Path,
        rounds: int,
        threads: int,
        shrink: int,
        patience: float,
    ) -> None:
        self.workload = workload
        self.program = [str(program)]
        self.rounds = rounds
        self.threads = threads
        self.shrink = shrink
        self.patience = patience
        self.folder = folder
        self.models = models  # what was exported stays there: an export runs the model
        self.others = 0.0  # the largest share of the machine that other programs took
        self.workers: dict[str, Worker] = {}
        self.requests: dict[str, Json] = {}
        self.alone = False  # whether memory holds one engine at a time: each is a new process in each of its turns
        self.engines: dict[str, Json] = {}
        self.has_peers = any(engine.kind != "tiled" for engine in workload.engines)

    def run(self) -> Json:
        try:
            self.write_files()
            for engine in self.workload.engines:
                self.start(engine)
            if self.has_peers:
                self.compare_results()
            self.wait_for_quiet()
            self.take_turns()
        finally:
            for worker in self.workers.values():
                worker.stop()
        date = datetime.date.today().isoformat()
        settings = {"rounds": self.rounds, "threads": self.threads, "shrink": self.shrink, "others": self.others}
        return {"engines": self.engines, "date": date, "weights_bytes": self.weights_bytes, **settings}

    def write_files(self) -> None:
        """Weights and arrays, the same for all."""
        worker = Worker(self.program, {})
        try:
            self.request: Json = {"task": self.workload.task, "threads": self.threads}
            if self.workload.shape:
                batch, channels, *extents = self.workload.shape
                self.extents = self.shrunk(extents)
            self.request |= self.write_network(worker)
            if self.workload.shape:
                generator = np.random.default_rng(1)
                image = generator.standard_normal((batch, channels, *self.extents), np.float32)
                self.request["input"] = self.save("input", image)
                loaded = worker.ask("load", **self.request, hold="materialise")
                self.flops = loaded["flops"]
                if self.workload.task == "backward":
                    gradient = generator.standard_normal(loaded["output_shape"], np.float32)
                    self.request["grad_output"] = self.save("grad_output", gradient)
        finally:
            worker.stop()

    def write_network(self, worker: Worker) -> Json:
        """The network and its weights, for our worker; what the peers read of it is `self.description`."""
        network = self.workload.network
        if isinstance(network, Model):
            shape = [*self.workload.shape[:2], *self.extents]
            words = [network.name, self.workload.task, *map(str, shape)]
            path = self.models / "-".join(words) / "network.onnx"
            if not path.exists() or not path.with_name(COMPANIONS[self.workload.task]).exists():
                subprocess.run([sys.executable, str(HERE / "exported.py"), *words, str(path.parent)], check=True)
            self.weights_bytes = path.stat().st_size
            self.description = {"onnx": str(path), "model": network.name}
            return {"network": {"onnx": str(path)}}
        self.description = worker.ask("describe", network=network)["network"]
        weights = self.folder / "weights.safetensors"
        worker.ask("initialise", network=network, seed=1, path=str(weights))
        self.weights_bytes = weights.stat().st_size
        return {"network": network, "weights": str(weights)}

    def shrunk(self, extents: list[int]) -> list[int]:
        return [min(extent, max(SMALLEST, extent // self.shrink)) for extent in extents]

    def save(self, name: str, array: np.ndarray) -> str:
        path = self.folder / f"{name}.npy"
        np.save(path, array)
        return str(path)

    def start(self, engine: Engine) -> None:
        """Loads and runs once, which measures the memory."""
        found: Json = {}
        request = self.request | engine.load
        if part := request.pop("part_of_peers", None):
            budget = self.part_of_peers(part)
            if budget is None:
                return
            request["memory_bytes"] = budget
        self.engines[engine.name] = found
        if "extents" in request:
            request["extents"] = self.shrunk(request["extents"])
        if engine.kind != "tiled":
            request["network"] = self.description
        self.requests[engine.name] = request
        worker = self.process(engine)
        try:
            found["hello"] = worker.ask("hello")
            loaded = worker.ask("load", **request)
            first = worker.ask("first")
            if self.has_peers:
                worker.ask("save", folder=str(self.folder / engine.name))
        except RuntimeError as failure:
            found["error"] = str(failure)
            say(f"  {engine.name}: failed: {failure}")
            worker.process.kill()
            worker.stop()
            return
        self.workers[engine.name] = worker
        height, width = request.get("extents") or self.extents
        found |= {name: value for name, value in first.items() if name != "seconds"}
        found |= {"pixels": height * width, "threads": request["threads"], "seconds": []}
        found["flops"] = loaded.get("flops") if "flops" in loaded else self.flops
        found["repeats"] = min(100, max(1, math.ceil(TURN_SECONDS / max(first["seconds"], 1e-6))))
        say(f"  {engine.name}: first run {first['seconds']:.4g} s, {first['memory_bytes'] / 1e6:.1f} MB")
        if not self.alone and free_share() < FREE:
            say("  the engines do not fit beside each other: each is loaded anew for its turn")
            self.alone = True
        if self.alone:
            for worker in self.workers.values():
                worker.stop()

    def process(self, engine: Engine) -> Worker:
        command = self.program
        if engine.kind != "tiled":
            command = [sys.executable, str(HERE / SCRIPTS[engine.kind]), engine.argument]
        return Worker(command, engine.environment)

    def part_of_peers(self, part: int) -> int | None:
        """The budget of a plan in such a part of the memory of the leanest peer: more by the weights, which a plan counts but no
        measurement does, as they are held before and let go of as they are packed; less by what a measurement has and no plan. None
        where that is nothing, and where the plan without a budget takes less.
        """
        kinds = {engine.name: engine.kind for engine in self.workload.engines}
        peers = [self.engines[name]["memory_bytes"] for name in self.workers if kinds[name] != "tiled"]
        least = min(peers, default=0) // part
        ours = self.engines.get(TILED.name, {}).get("memory_bytes", 0)
        if 0 < ours <= least:
            return None  # the fastest plan is in it
        return least + self.weights_bytes - UNCOUNTED if least > UNCOUNTED else None

    def compare_results(self) -> None:
        """Every engine's arrays with those of the reference; where one disagrees, float64 tells which is right.

        Gradients of a training step may be far from those of float64 in every engine of float32: the network magnifies
        roundings, or a gradient is zero but for them (that of a bias before a batch norm). There ours in float64 is compared.
        """
        if not (self.folder / REFERENCE).exists():
            return
        self.compare_with(REFERENCE)
        judged = [name for name in self.workers if name != WINOGRAD.name]
        if self.all_agree(judged):
            return
        if self.workload.task == "training":
            self.compare_in_double(judged)
            return
        self.save_in_double(ARBITER, self.description)
        self.compare_with(ARBITER)

    def all_agree(self, names: list[str]) -> bool:
        return all(self.engines[name].get("agrees", True) for name in names)

    def compare_in_double(self, judged: list[str]) -> None:
        """Ours in float64, and PyTorch's other layout to tell, with PyTorch's, on a part of the image. Where ours agrees, all
        gradients of float32 together may be twice as far from the reference as PyTorch's are.
        """
        image = np.load(self.request["input"], "r")
        part = self.save("part", np.ascontiguousarray(image[:, :, :PART, :PART]))
        network = self.request["network"]
        if "onnx" in network:
            network = {"onnx": str(Path(network["onnx"]).with_name(COMPANIONS["training"]))}
        self.save_in_double("part", self.description, input=part)
        channels_last = [*TORCH_SCRIPT, "float64_channels_last"]
        self.save_in_double("part, channels-last", self.description, channels_last, input=part)
        self.save_in_double("part of ours", network, self.program, input=part, hold="auto", double=True)
        smallest = SMALL * max(sizes(self.folder / "part").values())

        def furthest(folder: str) -> tuple[float, str]:
            paths = self.folder / "part", self.folder / folder
            return max((self.deviation(name, *paths, smallest), name) for name in ["output", *sizes(paths[0])])

        (ours, worst), (other, _) = furthest("part of ours"), furthest("part, channels-last")
        say(f"  in float64: {worst} of ours deviates by {ours:.2e} from PyTorch's, its other layout by {other:.2e}")
        spreads = {name: self.spread(name) for name in judged if "deviations" in self.engines[name]}
        theirs = max(spread for name, spread in spreads.items() if name.startswith("torch"))
        for name, spread in spreads.items():
            engine = self.engines[name]
            engine["double"] = {"deviation": ours, "of": worst, "layouts": other, "spread": spread}
            output = engine["deviations"]["output"]
            engine["agrees"] = output <= TOLERANCES["output"] and spread <= ROUNDINGS * theirs
            engine["agrees"] &= ours <= DOUBLE or name.startswith("torch")

    def spread(self, name: str) -> float:
        """How far all gradients together are from those of the reference, by their norms."""
        engine = self.engines[name]
        of = sizes(self.folder / engine["reference"])
        apart = math.sqrt(sum((engine["deviations"][key] * size) ** 2 for key, size in of.items()))
        return apart / math.sqrt(sum(size**2 for size in of.values()))

    def deviation(self, name: str, expected: Path, got: Path, smallest: float = 0.0) -> float:
        kind = "output" if name == "output" else "gradient"
        return deviation(kind, *(np.load(folder / f"{name}.npy", "r") for folder in (expected, got)), smallest)

    def compare_with(self, reference: str) -> None:
        for name in self.workers:
            engine = self.engines[name]
            if name == reference:
                continue
            engine |= {"reference": reference, "deviations": {}, "agrees": True}
            for path in sorted((self.folder / name).glob("*.npy")):
                engine["deviations"][path.stem] = self.deviation(path.stem, self.folder / reference, self.folder / name)
            bounds = {key: TOLERANCES["output" if key == "output" else "gradient"] for key in engine["deviations"]}
            beyond = {key: value for key, value in engine["deviations"].items() if not value <= bounds[key]}
            if beyond:
                engine["agrees"] = False
                worst = max(beyond, key=beyond.__getitem__)
                words = (
                    f"{len(beyond)} of {len(bounds)} deviate too far from {reference}, {worst} by {beyond[worst]:.2e}"
                )
                say(f"  {name}: {words}")

    def save_in_double(self, name: str, network: Any, program: list[str] | None = None, **options: Any) -> None:
        """What PyTorch, or a program of ours, gives in float64."""
        worker = Worker(program or [*TORCH_SCRIPT, "float64"], {})
        try:
            worker.ask("load", **(self.request | {"network": network} | options))
            worker.ask("first")
            worker.ask("save", folder=str(self.folder / name))
        finally:
            worker.stop()

    def measure_peaks(self) -> None:
        """A turn of the loops: what the instruction set of each engine and the memory reach, with its threads."""
        environments = {engine.name: engine.environment for engine in self.workload.engines}
        known: dict[tuple[str, int], Json] = {}
        for name in self.workers:
            engine = self.engines[name]
            key = (str(environments[name]), engine["threads"])
            if key not in known:
                worker = Worker(self.program, environments[name])
                known[key] = worker.ask("peaks", threads=engine["threads"])
                worker.stop()
            for what, value in known[key].items():
                engine.setdefault("peaks", {}).setdefault(what, []).append(value)

    def take_turns(self) -> None:
        names = list(self.workers)
        for turn in range(self.rounds):
            self.wait_for_quiet()
            self.measure_peaks()
            shift = turn % len(names) if names else 0
            for name in names[shift:] + names[:shift]:
                if self.alone:
                    self.wake(name)
                time.sleep(PAUSE_SECONDS)
                engine = self.engines[name]
                engine["seconds"] += self.workers[name].ask("run", repeats=engine["repeats"])["seconds"]
                if self.alone:
                    self.workers[name].stop()
            latest = ", ".join(f"{name} {self.engines[name]['seconds'][-1]:.4g}" for name in names)
            say(f"  round {turn + 1}: {latest}")
        time.sleep(PAUSE_SECONDS)
        self.measure_peaks()
        self.others = max(self.others, busy_share())

    def wake(self, name: str) -> None:
        """A new process, which has run once."""
        engine = next(engine for engine in self.workload.engines if engine.name == name)
        self.workers[name] = self.process(engine)
        self.workers[name].ask("load", **self.requests[name])
        self.workers[name].ask("first")

    def wait_for_quiet(self) -> None:
        """Waits while other programs use the machine, as long as there is patience."""
        busy = busy_share()
        while busy > QUIET and self.patience > 0:
            time.sleep(1.0)
            self.patience -= 2.0
            busy = busy_share()
        self.others = max(self.others, busy)


def free_share() -> float:
    """The share of the memory that is free or can be freed."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])


def busy_share() -> float:
    """The share of the machine that other programs use while the engines wait."""

    def ticks() -> tuple[int, int]:
        times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(times) - times[3] - times[4], sum(times)

    busy, total = ticks()
    time.sleep(1.0)
    busy_after, total_after = ticks()
    return (busy_after - busy) / max(1, total_after - total)


def deviation(kind: str, expected: np.ndarray, got: np.ndarray, smallest: float = 0.0) -> float:
    """Outputs: the largest difference by the largest element. Gradients: Euclidean norms, of which the expected one counts as at
    least the smallest.
    """
    if expected.size != got.size:
        return math.inf
    # features and parameters may have extents of one more, or less
    expected, got = expected.reshape(-1), got.reshape(-1)
    difference = scale = 0.0
    for begin in range(0, expected.size, AT_ONCE):
        a, b = (array[begin : begin + AT_ONCE] for array in (expected, got))
        if kind == "output":
            # not `max`, which drops what is not a number
            difference = float(np.maximum(difference, np.max(np.abs(a - b))))
            scale = float(np.maximum(scale, np.max(np.abs(a))))
        else:
            difference += float(np.sum(np.square(a - b, dtype=np.float64)))
            scale += float(np.sum(np.square(a, dtype=np.float64)))
    if kind == "gradient":
        difference, scale = math.sqrt(difference), max(math.sqrt(scale), smallest)
    if not math.isfinite(difference) or not math.isfinite(scale):
        return math.inf
    return difference / scale if scale > 0 else difference


def sizes(folder: Path) -> dict[str, float]:
    """The norms of gradients."""
    return {path.stem: norm(np.load(path, "r")) for path in sorted(folder.glob("grad*.npy"))}


def norm(array: np.ndarray) -> float:
    return math.sqrt(float(np.sum(np.square(array, dtype=np.float64))))


def say(text: str) -> None:
    print(text, flush=True)
