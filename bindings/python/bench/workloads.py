"""What is compared: workloads, the engines that run each, and the bars that we hold ourselves to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import geometric_mean, median
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """A worker and how it is asked to run."""

    name: str
    kind: str  # tiled, torch, onnxruntime, openvino
    argument: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    load: Json = field(default_factory=dict)  # overrides of the request `load`


@dataclass(frozen=True)
class Model:
    """A model of PyTorch that comes to the others as an ONNX file (exported.py)."""

    name: str


@dataclass(frozen=True)
class Workload:
    key: str
    row: int
    title: str
    network: Any  # the name of a built-in network, a description or a model
    shape: tuple[int, int, int, int] | None  # NCHW of the input; None where each engine has its own extents
    task: str  # inference, training, backward
    engines: tuple[Engine, ...]
    bytes_moved: int = 0  # where memory bounds it: input and output


TILED = Engine("tiled", "tiled", load={"hold": "auto"})
UNTILED = Engine("tiled, untiled", "tiled", load={"hold": "materialise"})
# other roundings than the sums of the peers: measured beside them, no bar rests on it
WINOGRAD = Engine("tiled, Winograd", "tiled", load={"hold": "auto", "winograd": True})
# a plan of its own: a budget of a tenth of what the leanest peer takes, where the weights alone, which come on top, take less
TENTH = Engine("tiled, in a tenth", "tiled", load={"hold": "auto", "part_of_peers": 10})
TORCH = (Engine("torch NCHW", "torch", "contiguous"), Engine("torch channels-last", "torch", "channels_last"))
PEERS = (
    *TORCH,
    Engine("onnxruntime", "onnxruntime", "onnxruntime"),
    Engine("OpenVINO", "openvino", "openvino"),
)

POOL: Json = {
    "inputs": [{"name": "x", "channels": 1}],
    "nodes": [{"name": "pool", "op": "max_pool2d", "inputs": ["x"], "kernel_size": 2}],
    "outputs": ["pool"],
}


def conv(in_channels: int, out_channels: int) -> Json:
    node = {"name": "conv", "op": "conv2d", "inputs": ["x"], "out_channels": out_channels, "kernel_size": 3}
    return {"inputs": [{"name": "x", "channels": in_channels}], "nodes": [node], "outputs": ["conv"]}


def image(network: str | Model, row: int, size: int, task: str, channels: int = 3) -> Workload:
    engines = (TILED, WINOGRAD, *PEERS) if task == "inference" else (TILED, *TORCH)
    if isinstance(network, Model) and task == "inference":
        engines += (TENTH,)
    name = network.name if isinstance(network, Model) else network
    title = f"`{name}` {size}², {'inference' if task == 'inference' else 'training step'}"
    return Workload(f"{name}-{size}-{task}", row, title, network, (1, channels, size, size), task, engines)


# the networks that people have, and the channels of their images
MODELS = {
    "mobilenet_v2": 3,
    "mobilenet_v3_large": 3,
    "efficientnet_b0": 3,
    "resnet50": 3,
    "convnext_tiny": 3,
    "deeplabv3_resnet50": 3,
    "EDSR": 3,
    "monai.SegResNet": 1,
}


def models(row: int, task: str) -> list[Workload]:
    return [
        image(Model(name), row, size, task, channels) for size in (1024, 2048) for name, channels in MODELS.items()
    ]


def convolutions() -> list[Workload]:
    found = []
    for batch, channels, size, out_channels in [(4, 3, 32, 16), (8, 32, 64, 64), (8, 64, 128, 128)]:
        for task, title in [("inference", "forward"), ("backward", "backward")]:
            ours = (UNTILED, TILED, WINOGRAD) if task == "inference" and channels >= 16 else (UNTILED, TILED)
            found.append(
                Workload(
                    f"conv-{batch}x{channels}x{size}-{task}",
                    6,
                    f"Conv2d {batch}×{channels}×{size}²→{out_channels}, 3×3, {title}",
                    conv(channels, out_channels),
                    (batch, channels, size, size),
                    task,
                    (*ours, *TORCH),
                )
            )
    return found


FROM_2_TO_5 = [
    ("vgg2", 2, 1024, "inference"),
    ("vgg2", 2, 2048, "inference"),
    ("light", 3, 4096, "inference"),
    ("vgg2", 4, 1024, "training"),
    ("light", 5, 1024, "training"),
    ("light", 5, 4096, "training"),
]


def threads(network: str, size: int, task: str, both: int) -> Workload:
    engines = tuple(
        Engine(f"{count} thread{'s' if count > 1 else ''}", "tiled", load={"hold": "auto", "threads": count})
        for count in (1, both)
    )
    base = image(network, 8, size, task)
    return Workload(f"threads-{base.key}", 8, f"{base.title}, 1 and {both} threads", network, base.shape, task, engines)


def avx2(size: int) -> Workload:
    engine = Engine("tiled, AVX2", "tiled", environment={"TILED_ISA": "avx2"}, load={"hold": "auto"})
    title = f"`vgg2` {size}², inference, AVX2"
    return Workload(f"avx2-vgg2-{size}", 9, title, "vgg2", (1, 3, size, size), "inference", (engine,))


def growth() -> Workload:
    engines = tuple(
        Engine(f"{size}²", "tiled", load={"hold": "auto", "extents": [size, size]})
        for size in (1024, 2048, 4096, 8192, 16384)
    )
    title = "`light` inference from a source to a sink without memory"
    return Workload("growth", 10, title, "light", None, "inference", engines)


def all_workloads(count: int) -> list[Workload]:
    """In the order of the rows; `count` threads."""
    moved = 4 * (4096 * 4096 + 2048 * 2048)
    pool = Workload(
        "max_pool",
        1,
        "max_pool2d 2×2/2, 1×1×4096×4096",
        POOL,
        (1, 1, 4096, 4096),
        "inference",
        (TILED, UNTILED, *PEERS),
        moved,
    )
    return [
        pool,
        *(image(network, row, size, task) for network, row, size, task in FROM_2_TO_5),
        *convolutions(),
        *(image(net, 7, 2048, task) for net in ("resnet18", "unet") for task in ("inference", "training")),
        *(threads(network, size, task, count) for network, _, size, task in FROM_2_TO_5),
        avx2(1024),
        avx2(2048),
        growth(),
        *models(11, "inference"),
        *models(12, "training"),
    ]


@dataclass(frozen=True)
class Bar:
    row: int
    what: str
    bound: str
    measured: str
    passes: bool


class Measured:
    """The measurements of a workload."""

    def __init__(self, workload: Workload, result: Json) -> None:
        self.workload = workload
        self.result = result
        self.engines: dict[str, Json] = {n: e for n, e in result["engines"].items() if "seconds" in e}
        self.kinds = {engine.name: engine.kind for engine in workload.engines}

    def seconds(self, name: str) -> float:
        return median(self.engines[name]["seconds"])

    def fastest(self, kinds: tuple[str, ...]) -> str | None:
        names = [name for name in self.engines if self.kinds.get(name) in kinds]
        return min(names, key=self.seconds, default=None)

    @property
    def ours(self) -> str | None:
        names = [name for name in self.engines if self.kinds.get(name) == "tiled"]
        names = [name for name in names if name not in (WINOGRAD.name, TENTH.name)]
        return min(names, key=self.seconds, default=None)

    @property
    def peer(self) -> str | None:
        return self.fastest(("torch", "onnxruntime", "openvino"))

    def gflops(self, name: str) -> float:
        return self.engines[name]["flops"] / self.seconds(name) / 1e9

    def peak(self, name: str, loop: str) -> float:
        return median(self.engines[name]["peaks"][loop])

    def share(self, name: str) -> float:
        return self.gflops(name) / self.peak(name, "multiply_add_gflops")

    def share_of_fastest(self, name: str) -> float:
        """Of the fastest slice of all that the loop of multiply-adds ran."""
        return self.gflops(name) / max(self.engines[name]["peaks"]["fastest_multiply_add_gflops"])

    def copy_share(self, name: str) -> float:
        moved = self.workload.bytes_moved / self.seconds(name) / 1e9
        return moved / self.peak(name, "copy_gb_per_second")

    def disagreements(self) -> list[str]:
        """Our engines whose results are wrong; a peer whose are is marked in its row."""
        ours = [name for name in self.engines if self.kinds.get(name) == "tiled" and name != WINOGRAD.name]
        return [name for name in ours if self.engines[name].get("agrees") is False]


def bars(measured: list[Measured]) -> list[Bar]:
    found: list[Bar] = []
    for one in measured:
        for bar in bars_of(one):
            if one.disagreements():
                bar = Bar(bar.row, bar.what, bar.bound, f"{bar.measured}; results disagree", False)
            found.append(bar)
    return found + means(measured)


def bars_of(one: Measured) -> list[Bar]:
    row, title = one.workload.row, one.workload.title
    if row == 8:
        return scaling_bars(one)
    if row == 10:
        return growth_bars(one)
    if one.ours is None:
        return [Bar(row, title, "runs", "failed", False)]
    if row == 9:
        return [share_of_peak(one, f"{title}: share of the AVX2 FMA peak", one.ours, 0.75)]
    if one.peer is None:
        return [Bar(row, title, "a peer runs", "none did", False)]
    ours = "tiled, untiled" if row == 6 and "tiled, untiled" in one.engines else one.ours
    ratio = one.seconds(ours) / one.seconds(one.peer)
    bound = {1: 0.35, 2: 1.0, 3: 0.75, 4: 0.65, 5: 0.4, 6: 1.0, 7: 1.0, 11: 0.85, 12: 0.8}[row]
    found = [at_most(row, f"{title}: time against {one.peer}", ratio, bound, "×")]
    if row == 1:
        if "torch NCHW" in one.engines:
            against_torch = one.seconds(ours) / one.seconds("torch NCHW")
            found.append(at_most(row, f"{title}: time against torch NCHW", against_torch, 0.06, "×"))
        found.append(at_least(row, f"{title}: share of the copy loop's bandwidth", one.copy_share(ours), 0.6))
    if row == 2:
        found.append(share_of_peak(one, f"{title}: share of the FMA peak", ours, 0.8))
    if row in (2, 3, 4, 5, 11):
        part = {2: 30, 3: 50, 4: 20, 5: 20, 11: 10}[row]
        theirs = one.engines[one.peer]["memory_bytes"]
        if row == 11 and theirs < part * one.result["weights_bytes"]:
            return found  # the weights alone are more
        less = theirs / max(1, one.engines[ours]["memory_bytes"])
        what, measured = f"{title}: memory against {one.peer}", f"1/{less:.1f}"
        passes = less >= part
        if not passes and TENTH.name in one.engines:
            # one plan that keeps to both
            ratio = one.seconds(TENTH.name) / one.seconds(one.peer)
            less = theirs / max(1, one.engines[TENTH.name]["memory_bytes"])
            measured += f"; in a tenth 1/{less:.1f}, time {ratio:.3f}×"
            passes = less >= part and ratio <= bound
        found.append(Bar(row, what, f"at most 1/{part}", measured, passes))
    return found


def means(measured: list[Measured]) -> list[Bar]:
    """The geometric means of the networks that people have."""
    found = []
    for row, what, bound in [(11, "inference", 0.7), (12, "training steps", 0.6)]:
        here = [one for one in measured if one.workload.row == row and one.ours and one.peer]
        if here:
            mean = geometric_mean([one.seconds(one.ours) / one.seconds(one.peer) for one in here])
            title = f"{what} of {len(here)} models and sizes: geometric mean of the times against the best peer"
            found.append(at_most(row, title, mean, bound, "×"))
    return found


def scaling_bars(one: Measured) -> list[Bar]:
    names = list(one.engines)
    if len(names) < 2:
        return [Bar(8, one.workload.title, "runs", "failed", False)]
    speedup = one.seconds(names[0]) / one.seconds(names[1])
    passes = speedup >= 1.8
    return [Bar(8, one.workload.title, "at least 1.8×", f"{speedup:.2f}×", passes)]


def growth_bars(one: Measured) -> list[Bar]:
    costs = [one.seconds(name) / one.engines[name]["pixels"] for name in one.engines]
    if len(costs) < 2:
        return [Bar(10, one.workload.title, "runs", "failed", False)]
    names = list(one.engines)
    grows = costs[-1] / costs[0] - 1
    what = f"{one.workload.title}: cost per pixel from {names[0]} to {names[-1]}"
    return [Bar(10, what, "grows by at most 10 %", f"{grows:+.1%}", grows <= 0.1)]


def at_most(row: int, what: str, value: float, bound: float, unit: str) -> Bar:
    return Bar(row, what, f"at most {bound}{unit}", f"{value:.3f}{unit}", value <= bound)


def share_of_peak(one: Measured, what: str, engine: str, bound: float) -> Bar:
    """Median of the loop against median of the run, as all ratios; the share of its fastest slice beside it."""
    bar = at_least(one.workload.row, what, one.share(engine), bound)
    measured = f"{bar.measured} ({one.share_of_fastest(engine):.1%} of its fastest slice)"
    return replace(bar, measured=measured)


def at_least(row: int, what: str, value: float, bound: float) -> Bar:
    return Bar(row, what, f"at least {bound:.0%}", f"{value:.1%}", value >= bound)
