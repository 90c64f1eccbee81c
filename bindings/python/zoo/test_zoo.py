"""Exports the models that people have from PyTorch, and runs each tiled against onnxruntime.

    pytest bindings/python/zoo --program target/release/tiled             every model, one opset each way
    pytest bindings/python/zoo -k "resnet18 and dynamo"                   some of them
    pytest bindings/python/zoo --everything                               all opsets and sizes for every model

Wants torch, torchvision, segmentation-models-pytorch, monai, onnx, onnxscript and onnxruntime. Weights are random, with the
statistics of one batch. A case is an export: by which of PyTorch's exporters, in which opset, with fixed or open sizes. What the
program refuses stands in refused.toml with the reason; another refusal, or one there that is read, is a failure. What PyTorch
itself cannot export, or another runtime not run, is skipped and said.

Exports and what others make of them are kept in a cache outside the tree (`--cache`), some gigabytes: without them a run takes
half an hour, with them minutes.
"""

from __future__ import annotations

import subprocess
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pytest
from exports import Case, Exported, Skip, cases, difference, exported, exported_wide

# of the largest value of a result
F32 = 1e-5
# where the depth of a model takes f32 further: of the same model in f64
F64 = 1e-9


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = cases(metafunc.config.getoption("--everything"))
    metafunc.parametrize("case", found, ids=[case.name for case in found])


def test_model_runs_tiled_as_in_onnxruntime(
    case: Case, program: Path, cache: Path, record_property: pytest.RecordProperty
) -> None:
    compare(case, program, cache, record_property)


def compare(case: Case, program: Path, cache: Path, record_property: pytest.RecordProperty) -> None:
    """What our program makes of an export and what is wanted, or that it refuses it for the reason that is known."""
    record_property("model", case.entry.name)
    record_property("export", case.export)
    try:
        model = exported(case, cache)
    except Skip as skip:
        pytest.skip(str(skip))
    got, words = here(program, model, "f32")
    reason = refused_in(case)
    if got is None:
        record_property("words", words)
        record_property("verdict", "refused")
        assert reason is not None and reason in words, words
        return
    assert reason is None, f"{case.name} stands in refused.toml and is read"
    assert got.shape == model.wanted.shape
    apart = difference(got, model.wanted)
    words = f"{apart:.1e} apart"
    if apart > F32:
        words += f", {deep(case, program, cache, got, model.wanted)}"
    record_property("words", words)
    record_property("verdict", "agrees")


def here(program: Path, model: Exported, dtype: str) -> tuple[np.ndarray | None, str]:
    """What our program says in tiles; None and its words where it refuses."""
    with tempfile.TemporaryDirectory(prefix="tiled-zoo-") as folder:
        given, result = Path(folder) / "x.npy", Path(folder) / "y.npy"
        np.save(given, model.x)
        command = [program, "run", "--net", model.path, "--input", given, "--output", result, "--dtype", dtype]
        done = subprocess.run([*command, "--grid", "2x2", "--threads", "2"], capture_output=True, text=True)
        words = done.stderr.strip().replace(str(model.path), model.path.name)
        if done.returncode == 2:
            return None, words
        assert done.returncode == 0, words
        value = np.load(result)
    # features have no height and width elsewhere
    return (value.reshape(value.shape[:2]) if value.shape[2:] == (1, 1) else value), words


def deep(case: Case, program: Path, cache: Path, got: np.ndarray, wanted: np.ndarray) -> str:
    """How far ours is from PyTorch in f64, where roundings of f32 alone take either further than the bound.

    What one rounding of each element of each layer makes of the result is told beside it: how far two right answers may be apart.
    """
    try:
        wide = exported_wide(case, cache)
    except Skip as skip:
        pytest.fail(f"{difference(got, wanted):.1e} apart, and nothing to compare in f64: {skip}")
    in_f32, in_f64 = np.load(wide.path.with_name("moved.npy"))
    ours, words = here(program, wide, "f64")
    assert ours is not None, words
    apart, narrow, theirs = (difference(result, wide.wanted) for result in (ours, got, wanted))
    said = f"{apart:.1e} in f64, where roundings make {in_f64:.1e}, and {in_f32:.1e} in f32"
    assert apart <= F64, said
    assert narrow <= 3 * theirs, f"{narrow:.1e} from f64 in f32, onnxruntime {theirs:.1e}; {said}"
    return said


def refused_in(case: Case) -> str | None:
    """A part of the words that this case is refused in."""
    groups = tomllib.loads(Path(__file__).with_name("refused.toml").read_text()).get("refused", [])
    for group in groups:
        exports = group.get("exports", [""])
        if case.entry.name in group["models"] and any(part in case.export for part in exports):
            return group["says"]
    return None
