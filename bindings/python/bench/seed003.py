"""Compares operators, modules and steps of training with PyTorch on the CPU, and writes docs/autograd-benchmarks.md.

    python bindings/python/bench/seed003.py                                   all tables
    python bindings/python/bench/seed003.py --tables operators --rounds 3     one; the page keeps what was measured before

Each side is a process that answers JSON lines; they take turns (comparison.py), on the same tensors.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import CACHE, ROOT, build, enter, machine

TURN_SECONDS = 0.1
MOST_REPEATS = 3000
TOLERANCE = 1e-4  # of the largest element, or of one where all are smaller

Json = dict[str, Any]


def main() -> None:
    options = arguments()
    enter(options.venv)
    from comparison import say
    from seed_cases import all_cells
    from seed_report import page

    results: Json = {"cells": {}, "peaks": {}}
    if options.results.exists():
        results = json.loads(options.results.read_text())
    cells = all_cells()
    if not options.report_only:
        program = options.worker or build("seed_worker", "autograd")
        wanted = [
            cell
            for cell in cells
            if cell.table in options.tables.split(",") and (not options.only or options.only in cell.key)
        ]
        run = Run(program, options.threads, options.rounds, results, options.results, options.turn)
        with tempfile.TemporaryDirectory(prefix="tiled-seed-", dir=options.work) as folder:
            run.all(wanted, Path(folder))
    results["machine"] = machine()
    options.page.write_text(page(cells, results, command(options)))
    say(f"wrote {options.page}")


class Run:
    def __init__(self, program: Path, threads: int, rounds: int, results: Json, path: Path, turn: float) -> None:
        self.program, self.threads, self.rounds = str(program), threads, rounds
        self.results, self.path, self.turn = results, path, turn
        self.workers: Json = {}

    def all(self, cells: list[Any], folder: Path) -> None:
        from comparison import QUIET, busy_share, say

        busy = busy_share()
        try:
            self.measure_peaks(cells)
            for cell in cells:
                self.cell(cell, folder)
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.results, indent=1))
            self.measure_peaks(cells)
        finally:
            self.stop()
        busy = max(busy, busy_share())
        if busy > QUIET:
            say(f"other programs took {busy:.0%} of the machine")
        for cell in cells:
            self.results["cells"][cell.key]["others"] = busy
        self.path.write_text(json.dumps(self.results, indent=1))

    def measure_peaks(self, cells: list[Any]) -> None:
        for isa in {cell.isa for cell in cells}:
            found = self.worker("tiled", isa).ask("peaks", threads=self.threads)
            for table in {cell.table for cell in cells if cell.isa == isa}:
                held = self.results["peaks"].setdefault(f"{table} {isa}".strip(), [])
                held.append(found)
                del held[:-8]  # what was measured long ago says nothing of these

    def worker(self, name: str, isa: str = "") -> Any:
        from comparison import HERE, Worker

        key = f"{name} {isa}"
        if key not in self.workers:
            command = [self.program] if name == "tiled" else [sys.executable, str(HERE / "seed_torch.py"), name]
            self.workers[key] = Worker(command, {"TILED_ISA": isa} if isa else {})
            hello = self.workers[key].ask("hello")
            self.results.setdefault("engines", {})[hello["name"] + (f", {isa}" if isa else "")] = hello
        return self.workers[key]

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        self.workers = {}

    def cell(self, cell: Any, folder: Path) -> None:
        from comparison import PAUSE_SECONDS, say
        from seed_cases import LONG

        if cell.table == LONG:
            self.stop()  # memory that an earlier case has left would not count
        tensors = str(folder / "case.safetensors")
        request = {
            "kind": cell.kind,
            "shape": list(cell.shape),
            "form": cell.form,
            "task": cell.task,
            "inputs_need": cell.inputs_need,
            "threads": self.threads,
            "tensors": tensors,
        }
        names = ["tiled", *cell.torch]
        workers = {name: self.worker(name, cell.isa if name == "tiled" else "") for name in names}
        self.worker("contiguous").ask("write", **request)
        engines: Json = {name: {"seconds": []} for name in names}
        for name, worker in workers.items():
            worker.ask("load", **request)
            first = worker.ask("first")
            engines[name]["memory_bytes"] = first.get("memory_bytes")
            worker.ask("save", path=str(folder / f"{name}.safetensors"))
            once = worker.ask("run", repeats=3 if first["seconds"] < self.turn else 1)["seconds"][-1]
            engines[name]["repeats"] = min(MOST_REPEATS, max(1, math.ceil(self.turn / max(once, 1e-6))))
        deviations = deviations_of(folder, cell.torch) if cell.torch else {}
        for turn in range(self.rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                time.sleep(PAUSE_SECONDS)
                engines[name]["seconds"] += workers[name].ask("run", repeats=engines[name]["repeats"])["seconds"]
        for engine in engines.values():
            engine |= summary(engine.pop("seconds"))
        found = {"engines": engines, "deviations": deviations, "rounds": self.rounds, "threads": self.threads}
        found["date"] = datetime.date.today().isoformat()
        self.results["cells"][cell.key] = found
        times = ", ".join(f"{name} {engine['median'] * 1e6:.4g} µs" for name, engine in engines.items())
        worst = max(deviations.values(), default=0.0)
        marks = "" if worst <= TOLERANCE else f" DISAGREES {worst:.1e}"
        say(f"{cell.key}: {times}{marks}")


def summary(seconds: list[float]) -> Json:
    ordered = sorted(seconds)
    return {"median": ordered[len(ordered) // 2], "fastest": ordered[0], "runs": len(ordered)}


def deviations_of(folder: Path, peers: tuple[str, ...]) -> dict[str, float]:
    """The largest difference of each tensor of ours from that of the first torch, by the largest element or one."""
    import numpy as np
    from safetensors.numpy import load_file

    ours, theirs = load_file(folder / "tiled.safetensors"), load_file(folder / f"{peers[0]}.safetensors")
    found = {}
    for name, expected in theirs.items():
        got = ours.get(name)
        if got is None or got.size != expected.size:
            found[name] = math.inf
            continue
        scale = max(1.0, float(np.max(np.abs(expected))))
        found[name] = float(np.max(np.abs(got.reshape(expected.shape) - expected))) / scale
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", default="operators,products,steps,tape,long", help="as operators,tape")
    parser.add_argument("--only", help="only cells whose key contains this")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--turn", type=float, default=TURN_SECONDS, help="seconds of a turn, about")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--venv", type=Path, default=CACHE / "venv", help="made where it does not exist")
    parser.add_argument("--results", type=Path, default=CACHE / "seed003.json", help="all measurements")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/autograd-benchmarks.md")
    parser.add_argument("--worker", type=Path, help="our worker, where it is not to be built")
    parser.add_argument("--work", type=Path, help="where tensors are written for the time of a case")
    parser.add_argument("--report-only", action="store_true", help="writes the page from the measurements")
    return parser.parse_args()


def command(options: argparse.Namespace) -> str:
    """The command that measures all of the page anew."""
    words = ["python", "bindings/python/bench/seed003.py", "--rounds", str(options.rounds)]
    if options.threads != 2:
        words += ["--threads", str(options.threads)]
    return shlex.join(words)


if __name__ == "__main__":
    main()
