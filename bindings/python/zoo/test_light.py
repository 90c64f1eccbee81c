"""Runs the nine networks that come with onnx, without their weights, tiled.

Their weights are one number each, their input is that of onnx's own runner, and their results lie beside them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from exports import Exported
from test_zoo import here

FOLDER = Path(onnx.backend.test.__file__).parent / "data/light"
MODELS = sorted(path.stem for path in FOLDER.glob("light_*.onnx"))


def test_there_are_nine() -> None:
    assert len(MODELS) == 9


@pytest.mark.parametrize("name", MODELS)
def test_network_runs_tiled_as_onnx_says(name: str, program: Path, record_property: pytest.RecordProperty) -> None:
    path = FOLDER / f"{name}.onnx"
    model = onnx.load(path)
    made = {tensor.name for tensor in model.graph.initializer}
    given = next(info for info in model.graph.input if info.name not in made)
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    # as `Runner.generate_dummy_data` has it
    count = int(np.prod(shape))
    x = (np.arange(count).reshape(shape) / count).astype(np.float32)
    wanted = onnx.numpy_helper.to_array(onnx.load_tensor(FOLDER / f"{name}_output_0.pb"))
    got, words = here(program, Exported(path, x, wanted), "f32")
    assert got is not None, words
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-7)
