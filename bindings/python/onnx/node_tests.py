"""Runs ONNX's own tests of single operators through the program `tiled`.

    python bindings/python/onnx/node_tests.py                     all cases of the operators that are read
    python bindings/python/onnx/node_tests.py --only resize -v    those whose name contains this, one line each

Each case is a model with one operator, its inputs and its outputs. Weights, sizes and the like, which these models
have as inputs, become initialisers; what is left goes to `tiled run`, and its outputs are compared. A case is passed,
refused or wrong. What is refused stands in tests/onnx/refused.toml with the reason; a refusal that does not, a case
there that passes, and anything wrong are failures. A virtual environment with onnx is made outside the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path.home() / ".cache/tiled-onnx"
PACKAGES = ["numpy", "onnx"]

# the operators of crates/onnx/src/ops whose result can be a value of a network; casts leave nothing of it
OPERATORS = set(
    "Abs Add ArgMax AveragePool BatchNormalization Celu Clip Concat Conv ConvTranspose DepthToSpace Div Dropout "
    "Elu Exp Flatten Gelu Gemm GlobalAveragePool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Identity "
    "InstanceNormalization LRN LayerNormalization LeakyRelu Log LogSoftmax MatMul Max MaxPool Mean Min Mish Mul "
    "Neg PRelu Pad Pow RMSNormalization Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum "
    "ReduceSumSquare Relu Reshape Resize Selu Sigmoid Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt "
    "Squeeze Sub Sum Swish Tanh ThresholdedRelu Transpose Unsqueeze Upsample".split()
)
# those of which every operand is a value
OF_VALUES = {"Add", "Concat", "Div", "Max", "Mean", "Min", "Mul", "Sub", "Sum"}
# those of features: rows of a matrix are images of one pixel
OF_PIXELS = set("Gemm LayerNormalization LogSoftmax MatMul RMSNormalization Softmax".split())
# those whose first operand alone is a value
OF_ONE = {"Clip", "Dropout", "Pow"}
# those that look at each element alone, so that arrays of other axes are images of one row, channel or batch
OF_ELEMENTS = set(
    "Abs Add Celu Clip Div Dropout Elu Exp Gelu HardSigmoid HardSwish Identity LeakyRelu Log Max Mean Min Mish Mul Neg "
    "Pow Reciprocal Relu Selu Sigmoid Softplus Softsign Sqrt Sub Sum Swish Tanh ThresholdedRelu".split()
)


def main() -> None:
    options = arguments()
    enter(options.venv)
    program = options.program or build()
    expected = refusals(options.refused)
    counts: Counter[str] = Counter()
    failures = []
    for case in cases(options.only):
        with tempfile.TemporaryDirectory(prefix="tiled-onnx-") as folder:
            verdict, words = run(program, Path(folder), case)
        counts[verdict] += 1
        reason = expected.get(case.name)
        if verdict == "refused":
            is_expected = reason is not None and reason in words
        else:
            is_expected = verdict == "passed" and reason is None
        if not is_expected:
            failures.append(f"{case.name}: {verdict}: {words or 'listed as refused'}")
        if options.verbose:
            print(f"{verdict:8} {case.name} {words}", flush=True)
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("passed", "refused", "wrong")))
    if failures:
        print("\n".join(failures))
        sys.exit(1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--program", type=Path, help="our program, where it is not to be built")
    parser.add_argument("--venv", type=Path, default=CACHE / "venv", help="made where it does not exist")
    parser.add_argument("--refused", type=Path, default=ROOT / "tests/onnx/refused.toml", help="what may be refused")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each case")
    return parser.parse_args()


def enter(folder: Path) -> None:
    """Goes on in the virtual environment, which is made and filled where it is not."""
    python = folder / "bin/python"
    if not python.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True)
    missing = f"import importlib.util as u; print(*[p for p in {PACKAGES} if u.find_spec(p) is None])"
    wanted = subprocess.check_output([python, "-c", missing], text=True).split()
    if wanted:
        subprocess.check_call([python, "-m", "pip", "install", *wanted])
    if Path(sys.prefix).resolve() != folder.resolve():
        os.execv(python, [str(python), *sys.argv])


def build() -> Path:
    """Our program."""
    arguments = ["build", "--release", "--bin", "tiled", "--message-format=json"]
    output = subprocess.check_output(["cargo", *arguments], cwd=ROOT, text=True)
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "tiled":
            return Path(message["executable"])
    raise RuntimeError("cargo names no executable")


def refusals(path: Path) -> dict[str, str]:
    """A part of the words that each refused case is refused in."""
    groups = tomllib.loads(path.read_text())["refused"]
    return {case: group["says"] for group in groups for case in group["cases"]}


def cases(only: str) -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    def is_ours(case: Any) -> bool:
        nodes = case.model.graph.node
        return len(nodes) == 1 and nodes[0].op_type in OPERATORS and nodes[0].domain == ""

    found = [case for case in load_model_tests(kind="node") if case.model is not None]
    return sorted((case for case in found if only in case.name and is_ours(case)), key=lambda case: case.name)


def run(program: Path, folder: Path, case: Any) -> tuple[str, str]:
    """The verdict on a case, and why where it is not passed."""
    import numpy as np
    from onnx import helper, numpy_helper, save

    given, wanted = case.data_sets[0]
    model = type(case.model)()
    model.CopyFrom(case.model)
    operator = model.graph.node[0].op_type
    expected = np.asarray(wanted[0])
    shapes = {np.shape(data) for data in (given[:1] if operator in OF_ONE else given) if is_numeric(data)}
    if operator in OF_ELEMENTS and shapes == {expected.shape} and expected.ndim < 4:
        expected = lifted(expected)
        count = 1 if operator in OF_ONE else len(given)
        given = [*map(lifted, given[:count]), *given[count:]]
        for info in list(model.graph.input)[:count]:
            reshape(info, expected.shape)
    if operator in OF_PIXELS and np.ndim(given[0]) == 2:
        given = [given[0].reshape((*given[0].shape, 1, 1)), *given[1:]]
        info, node = model.graph.input[0], model.graph.node[0]
        reshape(info, given[0].shape)
        name, info.name = info.name, f"{info.name}.pixel"
        del model.graph.node[:]
        model.graph.node.extend([helper.make_node("Flatten", [info.name], [name]), node])
    infos = list(model.graph.input)
    del model.graph.input[:]
    values = []
    for place, (info, data) in enumerate(zip(infos, given, strict=True)):
        # only tensors that are no first operand are constants
        is_value = place == 0 or (operator in OF_VALUES and np.ndim(data) == 4)
        if is_value or not isinstance(data, np.ndarray | np.generic):
            model.graph.input.append(info)
            values.append(data)
        else:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(data), info.name))
    # results that are there for those who want them: masks, indices, statistics of training
    del model.graph.output[1:]
    save(model, folder / "model.onnx")
    command = [str(program), "run", "--net", str(folder / "model.onnx"), "--threads", "1"]
    is_double = isinstance(values[0], np.ndarray) and values[0].dtype == np.float64
    command += ["--dtype", "f64" if is_double else "f32"]
    for place, data in enumerate(values):
        path = folder / f"x{place}.npy"
        np.save(path, np.asarray(data, dtype=np.float64 if is_double else np.float32) if is_numeric(data) else [])
        command += ["--input", str(path)]
    done = subprocess.run([*command, "--output", str(folder / "y.npy")], capture_output=True, text=True)
    words = done.stderr.strip().replace(str(folder), "")
    if done.returncode == 2:
        return "refused", words
    if done.returncode != 0:
        return "wrong", f"exit code {done.returncode}: {words}"
    result = np.load(folder / "y.npy")
    # a value of two axes has one pixel
    if result.shape != expected.shape and result.shape != (*expected.shape, 1, 1):
        return "wrong", f"shape {result.shape}, wants {expected.shape}"
    difference = np.abs(result.reshape(expected.shape).astype(np.float64) - expected.astype(np.float64))
    bound = case.atol + case.rtol * np.abs(expected.astype(np.float64))
    if not (difference <= bound).all():
        return "wrong", f"differs by {difference.max()}"
    return "passed", ""


def lifted(data: Any) -> Any:
    """The array with four axes, the first of them one long."""
    return data.reshape((1,) * (4 - data.ndim) + data.shape)


def reshape(info: Any, shape: tuple[int, ...]) -> None:
    """Declares another shape."""
    del info.type.tensor_type.shape.dim[:]
    for extent in shape:
        info.type.tensor_type.shape.dim.add().dim_value = extent


def is_numeric(data: Any) -> bool:
    import numpy as np

    return isinstance(data, np.ndarray) and data.dtype.kind in "fiub"


if __name__ == "__main__":
    main()
