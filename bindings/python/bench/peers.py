"""Compares tiled with PyTorch, onnxruntime and OpenVINO, and writes docs/benchmarks.md.

    python bindings/python/bench/peers.py                         all rows
    python bindings/python/bench/peers.py --rows 1,2 --rounds 3   these; the page keeps what was measured before
    python bindings/python/bench/peers.py --rows 11 --page P.md   a page of its own, with measurements of its own

A virtual environment with the peers is made outside the tree, and our worker is built by cargo. Each engine is
a process that answers JSON lines (protocol.py); the engines take turns (comparison.py), so that all see the same
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path.home() / ".cache/tiled-bench"
PAGE = ROOT / "docs/benchmarks.md"
ALL_ROWS = ",".join(str(row) for row in range(1, 13))
PACKAGES = ["numpy", "torch", "torchvision", "monai", "onnx", "onnxruntime", "openvino"]

Json = dict[str, Any]


def main() -> None:
    options = arguments()
    enter(options.venv)
    from comparison import DOUBLE, ROUNDINGS, SMALL, TOLERANCES, Comparison, say
    from protocol import PART
    from report import page
    from workloads import all_workloads

    workloads = all_workloads(options.threads)
    results: Json = {"workloads": {}}
    if options.results.exists():
        results = json.loads(options.results.read_text())
    if not options.report_only:
        program = options.worker or build("bench_worker", "onnx")
        rows = {int(row) for row in options.rows.split(",")}
        for workload in chosen(workloads, rows, options.only):
            say(f"{workload.row}. {workload.title}")
            with tempfile.TemporaryDirectory(prefix="tiled-bench-", dir=options.work) as folder:
                one = Comparison(
                    workload,
                    program,
                    Path(folder),
                    models=CACHE / "models",
                    rounds=options.rounds,
                    threads=options.threads,
                    shrink=options.shrink,
                    patience=options.patience,
                )
                results["workloads"][workload.key] = one.run()
            options.results.parent.mkdir(parents=True, exist_ok=True)
            options.results.write_text(json.dumps(results, indent=1))
    results["tolerances"] = TOLERANCES | {"double": DOUBLE, "part": PART, "roundings": ROUNDINGS, "small": SMALL}
    results["machine"] = machine()
    present = [workload for workload in workloads if workload.key in results["workloads"]]
    options.page.write_text(page(present, results, command(options)))
    say(f"wrote {options.page}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default=ALL_ROWS, help="the rows to measure, as 1,2,5")
    parser.add_argument("--only", help="only workloads whose key is this or, where none is, contains it")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--venv", type=Path, default=CACHE / "venv", help="made where it does not exist")
    parser.add_argument("--results", type=Path, help="all measurements of the page; in the cache, by its name")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--worker", type=Path, help="our worker, where it is not to be built")
    parser.add_argument("--work", type=Path, help="where images are written for the time of a workload")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine")
    parser.add_argument("--shrink", type=int, default=1, help="divides all extents: to try the program out")
    parser.add_argument("--report-only", action="store_true", help="writes the page from the measurements")
    options = parser.parse_args()
    own = "results" if options.page == PAGE else options.page.stem
    options.results = options.results or CACHE / f"{own}.json"
    return options


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


def chosen(workloads: list[Any], rows: set[int], only: str | None) -> list[Any]:
    """Those of the rows whose key is `only` or, where none is, contains it."""
    asked = [workload for workload in workloads if workload.row in rows and (only or "") in workload.key]
    return [workload for workload in asked if workload.key == only] or asked


def build(example: str, *features: str) -> Path:
    """Our worker."""
    arguments = ["--release", "-p", "tiled", "--features", ",".join(features), "--example", example]
    output = subprocess.check_output(["cargo", "build", *arguments, "--message-format=json"], cwd=ROOT, text=True)
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == example:
            return Path(message["executable"])
    raise RuntimeError("cargo names no executable")


def machine() -> Json:
    def value(path: str, key: str) -> str:
        lines = Path(path).read_text().splitlines()
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "unknown")

    memory_gib = int(value("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20)
    return {
        "cpu": value("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": f"{memory_gib:.0f} GiB of memory",
        "system": f"{platform.system()}, Python {platform.python_version()}",
    }


def command(options: argparse.Namespace) -> str:
    """The command that measures all of the page anew."""
    words = ["python", "bindings/python/bench/peers.py", "--rounds", str(options.rounds)]
    if options.threads != 2:
        words += ["--threads", str(options.threads)]
    if options.rows != ALL_ROWS:
        words += ["--rows", options.rows]
    if options.page != PAGE:
        words += ["--page", os.path.relpath(options.page, ROOT)]
    return shlex.join(words)


if __name__ == "__main__":
    main()
