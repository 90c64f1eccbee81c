"""Options and the summary of the zoo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

# nothing is left in the tree
sys.dont_write_bytecode = True

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiled-zoo"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--program", type=Path, help="our program, where it is not to be built")
    parser.addoption("--cache", type=Path, default=CACHE, help="where exports are kept")
    parser.addoption("--everything", action="store_true", help="every model in all opsets, with fixed and open sizes")


@pytest.fixture(scope="session")
def program(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--program")
    return given.resolve() if given else built()


@pytest.fixture(scope="session")
def cache(request: pytest.FixtureRequest) -> Path:
    return request.config.getoption("--cache").resolve()


def built() -> Path:
    """Our program, by cargo."""
    arguments = ["build", "--release", "--bin", "tiled", "--message-format=json"]
    output = subprocess.check_output(["cargo", *arguments], cwd=ROOT, text=True)
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "tiled":
            return Path(message["executable"])
    raise RuntimeError("cargo names no executable")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says of each model what its exports came to, and how many models are read whole."""
    verdicts: dict[str, list[str]] = defaultdict(list)
    for kind in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(kind, []):
            told = dict(getattr(report, "user_properties", []))
            if "model" in told:
                verdict = told.get("verdict", kind) if kind != "failed" else "failed"
                verdicts[told["model"]].append(verdict)
                said = f"{told['model']} {told['export']}: {verdict} {told.get('words', '')}"
                terminalreporter.write_line(said.rstrip())
    whole = [model for model, of in verdicts.items() if "agrees" in of and not {"refused", "failed"} & set(of)]
    if verdicts:
        terminalreporter.write_line(f"{len(whole)} of {len(verdicts)} models are read whole and agree")
