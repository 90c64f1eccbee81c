"""Exports of the zoo and what others make of them, kept in a cache: an export takes far longer than a run."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from models import MODELS, Entry

# those that each writes: the newer exporter converts none of these models below 18
OPSETS = {"script": (11, 13, 17, 18, 20), "dynamo": (18, 20, 23)}

# what an export and its results depend on beside the model and this folder
PACKAGES = ("torch", "torchvision", "segmentation-models-pytorch", "monai", "onnx", "onnxscript", "onnxruntime")


class Skip(Exception):
    """Why there is no such export, or nothing to compare with."""


@dataclass(frozen=True)
class Case:
    """An export of a model."""

    entry: Entry
    exporter: str
    opset: int
    is_open: bool

    @property
    def export(self) -> str:
        return f"{self.exporter}-{self.opset}-{'open' if self.is_open else 'fixed'}"

    @property
    def name(self) -> str:
        return f"{self.entry.name}-{self.export}"


def cases(is_all: bool) -> list[Case]:
    """Every model by both exporters, one with fixed and one with open sizes, in opsets that take turns; or all of it."""
    found = []
    for place, entry in enumerate(MODELS):
        for way, (exporter, opsets) in enumerate(OPSETS.items()):
            for turn, opset in enumerate(opsets):
                sizes = (False, True) if is_all else (bool((place + way + turn) % 2),)
                sizes = sizes if entry.traced else (False,)
                if is_all or entry.every_opset or turn == place % len(opsets):
                    found += [Case(entry, exporter, opset, is_open) for is_open in sizes]
    return found


@dataclass(frozen=True)
class Exported:
    """A model in the cache, with an input and what is wanted of it."""

    path: Path
    x: np.ndarray
    wanted: np.ndarray


def exported(case: Case, cache: Path) -> Exported:
    """The model in f32, and what onnxruntime makes of it."""

    def make(folder: Path) -> None:
        x = example(case)
        export(case, ready(case.entry), x, folder / "model.onnx")
        np.save(folder / "x.npy", x)
        np.save(folder / "wanted.npy", elsewhere(folder / "model.onnx", x))

    return kept(cache / key(case) / "f32", make)


def exported_wide(case: Case, cache: Path) -> Exported:
    """The model in f64, exported as such since exporters fold norms into weights, and what PyTorch makes of it.

    Beside it lies how far roundings of f32 and of f64 take the result: one of every element of every layer, up or down.
    """

    def make(folder: Path) -> None:
        import torch

        model, x = ready(case.entry, is_wide=True), example(case).astype(np.float64)
        export(case, model, x, folder / "model.onnx")
        np.save(folder / "x.npy", x)
        given = torch.from_numpy(x)
        with torch.no_grad():
            wanted = model(given).numpy()
            np.save(folder / "wanted.npy", wanted)
            moved = [difference(rounded(model, given, 2.0**-digits), wanted) for digits in (24, 53)]
        np.save(folder / "moved.npy", moved)

    return kept(cache / key(case) / "f64", make)


def rounded(model: object, x: object, epsilon: float) -> np.ndarray:
    """What PyTorch makes of an input where every layer's result is off by this, relatively, up or down."""
    import torch

    signs = torch.Generator().manual_seed(1)

    def off(_module: object, _inputs: object, result: object) -> object:
        if not isinstance(result, torch.Tensor):
            return result
        sign = torch.randint(0, 2, result.shape, generator=signs, dtype=result.dtype) * 2 - 1
        return result + result * (sign * epsilon)

    layers = [module for module in model.modules() if not list(module.children())]
    hooks = [layer.register_forward_hook(off) for layer in layers]
    try:
        return model(x).numpy()
    finally:
        for hook in hooks:
            hook.remove()


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, of the largest value."""
    return float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max())


def key(case: Case) -> str:
    """The name of a case, and a digest of what it depends on."""
    facts = [case.entry.recipe, *(f"{package} {version(package)}" for package in PACKAGES)]
    of = case.entry.build.func.__name__
    sources = ["exports.py", *([f"{of}.py"] if of == "own" else ["idioms.py"] if of == "idiom" else [])]
    facts += [Path(__file__).with_name(name).read_text() for name in sources]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    return f"{case.name}-{digest[:12]}"


def kept(folder: Path, make: Callable[[Path], None]) -> Exported:
    """What lies in a folder of the cache, made where it does not yet."""
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        try:
            make(unfinished)
        except Skip as skip:
            shutil.rmtree(unfinished)
            unfinished.mkdir()
            (unfinished / "skip.txt").write_text(str(skip))
        except BaseException:
            shutil.rmtree(unfinished)
            raise
        unfinished.rename(folder)
    if (folder / "skip.txt").exists():
        raise Skip((folder / "skip.txt").read_text())
    return Exported(folder / "model.onnx", np.load(folder / "x.npy"), np.load(folder / "wanted.npy"))


@lru_cache(maxsize=1)
def ready(entry: Entry, is_wide: bool = False) -> object:
    """The model with its weights; cases are in the order of the models, so one is kept."""
    import models

    model = models.ready(entry)
    return model.double() if is_wide else model


def example(case: Case) -> np.ndarray:
    """An input of the size of a run."""
    shape = (2 if case.is_open else 1, case.entry.channels, *case.entry.size)
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def export(case: Case, model: object, x: np.ndarray, path: Path) -> None:
    """Writes the model, or skips the case where PyTorch cannot."""
    import torch

    given = torch.from_numpy(x)
    if case.is_open:
        assert case.entry.traced, "only models with a size to trace"
        given = torch.randn(2, case.entry.channels, *case.entry.traced, dtype=given.dtype)
    names = {0: "batch", 2: "height", 3: "width"}
    options: dict[str, object] = {"input_names": ["x"], "output_names": ["y"], "opset_version": case.opset}
    if case.exporter == "script":
        options |= {"dynamo": False}
        if case.is_open:
            options |= {"dynamic_axes": {"x": names, "y": {0: "batch"}}}
    else:
        options |= {"dynamo": True, "verbose": False}
        if case.is_open:
            options |= {"dynamic_shapes": ({axis: torch.export.Dim.DYNAMIC for axis in names},)}
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            torch.onnx.export(model, (given,), path, **options)
    except Exception as error:  # of whatever kind: it is not ours
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise Skip(f"{case.name}: PyTorch does not export it: {words[0][:160]}") from error
    opset = written_opset(path)
    if opset != case.opset:
        raise Skip(f"{case.name}: PyTorch writes opset {opset} where {case.opset} is wanted")


def written_opset(path: Path) -> int:
    """The opset of a file: where PyTorch cannot convert, it says so and writes another."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    return next(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx"))


def elsewhere(path: Path, x: np.ndarray) -> np.ndarray:
    """What onnxruntime says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: x})[0]
    except Exception as error:
        raise Skip(f"onnxruntime does not run it: {str(error).strip()[:160]}") from error
