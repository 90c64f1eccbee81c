"""Exports the models that people have from PyTorch, and runs each tiled against onnxruntime.

    pytest bindings/python/zoo --program target/release/tiled             every model, one opset each way
    pytest bindings/python/zoo -k "resnet18 and dynamo"                   some of them
    pytest bindings/python/zoo --everything                               all opsets and sizes for every model

Wants torch, torchvision, segmentation-models-pytorch, monai, onnx, onnxscript and onnxruntime. Weights are random, with the
statistics of one batch. A case is an export: by which of PyTorch's exporters, in which opset, with fixed or open sizes. What the
program refuses stands in refused.toml with the reason; another refusal, or one there that is read, is a failure. What PyTorch
itself cannot export, or another runtime not run, is skipped and said.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import tempfile
import tomllib
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from models import MODELS, Entry, ready
from torch import nn

# those that each writes: the newer exporter converts none of these models below 18
OPSETS = {"script": (11, 13, 17, 18, 20), "dynamo": (18, 20, 23)}

# of the largest value of a result
F32 = 1e-5
# where the depth of a model takes f32 further: of the same model in f64
F64 = 1e-9


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = cases(metafunc.config.getoption("--everything"))
    metafunc.parametrize("case", found, ids=[case.name for case in found])


def test_model_runs_tiled_as_in_onnxruntime(
    case: Case, program: Path, record_property: pytest.RecordProperty
) -> None:
    record_property("model", case.entry.name)
    record_property("export", case.export)
    model = model_of(case.entry)
    x = torch.randn(2 if case.is_open else 1, case.entry.channels, *case.entry.size)
    with tempfile.TemporaryDirectory(prefix="tiled-zoo-") as folder:
        path = Path(folder) / "model.onnx"
        export(case, model, x, path)
        wanted = elsewhere(path, x)
        got, words = here(program, path, x.numpy(), "f32", path.parent)
        reason = refused_in(case)
        if got is None:
            record_property("words", words)
            record_property("verdict", "refused")
            assert reason is not None and reason in words, words
            return
        assert reason is None, f"{case.name} stands in refused.toml and is read"
        assert got.shape == wanted.shape
        apart = difference(got, wanted)
        words = f"{apart:.1e} apart"
        if apart > F32:
            words += f", {deep(case, program, path, x, got, wanted):.1e} in f64"
        record_property("words", words)
        record_property("verdict", "agrees")


@lru_cache(maxsize=1)
def model_of(entry: Entry) -> nn.Module:
    """The model; cases are in the order of the models, so one is kept."""
    return ready(entry)


def export(case: Case, model: nn.Module, x: torch.Tensor, path: Path) -> None:
    """Writes the model, or skips the case where PyTorch cannot."""
    if case.is_open:
        assert case.entry.traced, "only models with a size to trace"
        x = torch.randn(2, case.entry.channels, *case.entry.traced, dtype=x.dtype)
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
            torch.onnx.export(model, (x,), path, **options)
    except Exception as error:  # of whatever kind: it is not ours
        words = str(error).strip().splitlines() or [type(error).__name__]
        pytest.skip(f"{case.name}: PyTorch does not export it: {words[0][:160]}")
    opset = written_opset(path)
    if opset != case.opset:
        pytest.skip(f"{case.name}: PyTorch writes opset {opset} where {case.opset} is wanted")


def written_opset(path: Path) -> int:
    """The opset of a file: where PyTorch cannot convert, it says so and writes another."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    return next(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx"))


def elsewhere(path: Path, x: torch.Tensor) -> np.ndarray:
    """What onnxruntime says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    except Exception as error:
        pytest.skip(f"onnxruntime does not run it: {str(error).strip()[:160]}")


def here(program: Path, path: Path, x: np.ndarray, dtype: str, folder: Path) -> tuple[np.ndarray | None, str]:
    """What our program says in tiles, by files in this folder; None and its words where it refuses."""
    given, result = folder / "x.npy", folder / "y.npy"
    np.save(given, x)
    command = [program, "run", "--net", path, "--input", given, "--output", result, "--dtype", dtype]
    done = subprocess.run([*command, "--grid", "2x2", "--threads", "2"], capture_output=True, text=True)
    words = done.stderr.strip().replace(str(path), path.name)
    if done.returncode == 2:
        return None, words
    assert done.returncode == 0, words
    value = np.load(result)
    # features have no height and width elsewhere
    return (value.reshape(value.shape[:2]) if value.shape[2:] == (1, 1) else value), words


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, of the largest value."""
    return float(np.abs(a.astype(np.float64) - b).max() / np.abs(b).max())


def deep(case: Case, program: Path, path: Path, x: torch.Tensor, got: np.ndarray, wanted: np.ndarray) -> float:
    """How far ours is from PyTorch in f64, where roundings of f32 alone take either further than the bound."""
    wide = model_of(case.entry).double()
    model_of.cache_clear()
    with torch.no_grad():
        exact = wide(x.double()).numpy()
    # exporters fold norms into weights in the type of the model, so it is exported once more
    export(case, wide, x.double(), path)
    ours, words = here(program, path, x.double().numpy(), "f64", path.parent)
    assert ours is not None, words
    apart = difference(ours, exact)
    assert apart <= F64, f"{apart:.1e} apart in f64, {difference(got, wanted):.1e} in f32"
    assert difference(got, exact) <= 3 * difference(wanted, exact), "further than onnxruntime in f32"
    return apart


def refused_in(case: Case) -> str | None:
    """A part of the words that this case is refused in."""
    groups = tomllib.loads(Path(__file__).with_name("refused.toml").read_text()).get("refused", [])
    for group in groups:
        exports = group.get("exports", [""])
        if case.entry.name in group["models"] and any(part in case.export for part in exports):
            return group["says"]
    return None
