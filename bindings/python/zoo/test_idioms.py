"""Exports PyTorch's modules, and what people write by hand, and runs each tiled: by both exporters, fixed and open sizes.

    pytest bindings/python/zoo/test_idioms.py --program target/release/tiled

What the program refuses of them stands in refused.toml beside the models.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from exports import Case
from idioms import IDIOMS, idiom
from models import Entry
from test_zoo import compare

# height and width of the example of an open export are others
SIZES = {"size": (28, 40), "traced": (24, 32)}


def cases() -> list[Case]:
    entries = [Entry(f"idiom.{name}", partial(idiom, name), **SIZES) for name in IDIOMS]
    ways = [("script", 17), ("dynamo", 18)]
    return [Case(entry, *way, is_open) for entry in entries for way in ways for is_open in (False, True)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = cases()
    metafunc.parametrize("case", found, ids=[case.name for case in found])


def test_idiom_runs_tiled_as_in_onnxruntime(
    case: Case, program: Path, cache: Path, record_property: pytest.RecordProperty
) -> None:
    compare(case, program, cache, record_property)
