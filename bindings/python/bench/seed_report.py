"""The measurements of seed003.py as a page."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from report import size, table, time
from seed_cases import FORMS, IN_CACHE_BYTES, LONG, NODES, OPERATORS, PRODUCTS, STEPS, TAPE, Cell

Json = dict[str, Any]

TOLERANCE = 1e-4
CALLS_SECONDS = 5e-6  # a floor below this is no floor: what remains is what a call costs

HEAD = """\
# Autograd against PyTorch

<!-- Written by bindings/python/bench/seed003.py; do not edit. -->

Operators, modules and steps of training of `tiled-autograd` and of PyTorch on the CPU, alternately in one run, on the same
tensors, with the same threads, in f32. Take the ratios, not the seconds.
"""

METHOD = """\
## How it is measured

- Each side is a process of its own that stays alive and waits while the other runs. Both read inputs and parameters from one
  file. After one run for the agreement and one to three more, they take turns of about 0.1 s. Times are medians over all runs.
- Forward is timed under `no_grad`. Backward is `output.sum().backward()`, the sum timed too, gradients added to those of the runs
  before; forward runs before it and is not timed. *P*: gradients of the parameters; *I*: of the inputs too.
- Attention *S* is sequence first with the probabilities returned (`need_weights=True`), *B* batch first without them, PyTorch's
  fused path. Both with biases, in training mode.
- Of convolutions, PyTorch runs NCHW and channels-last, and the faster one counts.
- A step is: gradients to zero, forward, loss, backward, optimiser (SGD with momentum for the CNN, AdamW for the others).
- The floor of a cell is the largest of its arithmetic at the speed of a loop of multiply-adds, its memory at that of a loop of
  copies, where it is more than the caches hold, and its exponentials at 16 operations each. Where it is below 5 µs, calls are the limit.
- Agreement: each output and gradient differs from PyTorch's by at most {tolerance:.0e} of its largest element, or of one where all
  are smaller. A bar is missed where it does not.
"""

NOTES: dict[str, str] = {
    OPERATORS: """\
By samples of a profile, Conv2d b forward spends 82 % of its time in the loop of multiply-adds and 11 % in writing its sums to planes. Rows
of 62 pixels are six tiles of 10 or 11.
""",
}


class Found:
    """What was measured of a cell."""

    def __init__(self, cell: Cell, results: Json) -> None:
        self.cell, self.result = cell, results["cells"][cell.key]
        self.engines: Json = self.result["engines"]
        peaks = results["peaks"].get(f"{cell.table} {cell.isa}".strip(), [])
        self.peak = 1e9 * median(peak["multiply_add_gflops"] for peak in peaks)
        self.copy = 1e9 * median(peak["copy_gb_per_second"] for peak in peaks)
        self.ours: float = self.engines["tiled"]["median"]
        others = {name: engine["median"] for name, engine in self.engines.items() if name not in ("tiled", "math")}
        self.peer = min(others, key=others.get) if others else None
        self.theirs = others[self.peer] if self.peer else math.nan
        self.agrees = max(self.result["deviations"].values(), default=0.0) <= TOLERANCE

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def share(self) -> float:
        return self.cell.flops / self.ours / self.peak

    def floor(self) -> tuple[float, str]:
        """The least time, and what it is made of."""
        limits = {"arithmetic": self.cell.flops / self.peak}
        limits["exponentials"] = 16 * self.cell.exponentials / self.peak
        if self.cell.bytes > IN_CACHE_BYTES:
            limits["memory"] = self.cell.bytes / self.copy
        name = max(limits, key=limits.get)
        return (limits[name], name if limits[name] >= CALLS_SECONDS else "calls")


def page(cells: list[Cell], results: Json, command: str) -> str:
    found = [Found(cell, results) for cell in cells if cell.key in results["cells"]]
    of = lambda name: [one for one in found if one.cell.table == name]  # noqa: E731
    parts = [HEAD, machine(results), f"```sh\n{command}\n```\n"]
    parts.append("## Bars\n")
    parts.append(table(["what", "bar", "measured", ""], bars(found)))
    sections = [
        (OPERATORS, "Operators and modules", operators),
        (PRODUCTS, "Products", products),
        (STEPS, "Steps of training", steps),
        (TAPE, "Cost of the tape", chain),
        (LONG, "Long attention, 32×1024×256, 8 heads", long),
    ]
    for name, title, write in sections:
        if of(name):
            parts.append(f"## {title}\n")
            parts.append(facts(of(name)))
            parts.append(write(of(name)))
            if name in NOTES:
                parts.append(NOTES[name])
    parts.append(METHOD.format(tolerance=TOLERANCE))
    return "\n".join(parts)


def machine(results: Json) -> str:
    known = results["machine"]
    engines = results.get("engines", {})
    rows = [[name, e["version"], e.get("settings") or e.get("backend", "")] for name, e in sorted(engines.items())]
    line = f"Machine: {known['cpu']}, {known['cores']} cores, {known['memory']}, {known['system']}.\n"
    return line + "\n" + table(["engine", "version", "settings"], rows)


def facts(found: list[Found]) -> str:
    dates = sorted({one.result["date"] for one in found})
    rounds = sorted({one.result["rounds"] for one in found})
    threads = sorted({one.result["threads"] for one in found})
    words = [" to ".join(dict.fromkeys([dates[0], dates[-1]]))]
    words.append(f"rounds: {', '.join(map(str, rounds))}, threads: {', '.join(map(str, threads))}")
    for isa in sorted({one.cell.isa for one in found}):
        first = next(one for one in found if one.cell.isa == isa)
        name = f" ({isa})" if isa else ""
        words.append(f"multiply-adds{name} {first.peak / 1e9:.0f} GFLOP/s")
    words.append(f"copies {found[0].copy / 1e9:.1f} GB/s")
    others = max(one.result.get("others", 0.0) for one in found)
    if others > 0.05:
        words.append(f"**other programs took {others:.0%} of the machine**")
    return "; ".join(words) + ".\n"


def bars(found: list[Found]) -> list[list[str]]:
    rows = []

    def bar(what: str, bound: str, measured: str, passes: bool) -> None:
        rows.append([what, bound, measured, "met" if passes else "**missed**"])

    agreeing = sum(one.agrees for one in found)
    bar("agreement of all cells", "all", f"{agreeing} of {len(found)}", agreeing == len(found))
    rated = [one for one in found if one.cell.table == OPERATORS]
    if rated:
        count = len(rated)
        even = sum(one.ratio <= 1.0 for one in rated)
        well = sum(one.ratio <= 0.8 for one in rated)
        mean = math.exp(sum(math.log(one.ratio) for one in rated) / count)
        bar("operators: cells at most 1.0× PyTorch", f"{count} of {count}", f"{even} of {count}", even == count)
        bar("operators: cells at most 0.8×", f"{math.ceil(2 * count / 3)} of {count}", f"{well}", 3 * well >= 2 * count)
        bar("operators: geometric mean", "0.65×", f"{mean:.3f}×", mean <= 0.65)
    products = [one for one in found if one.cell.table == PRODUCTS]
    for isa, bound in (("", 0.85), ("avx2", 0.75)):
        large = [one for one in products if one.cell.isa == isa and set(one.cell.shape) == {one.cell.shape[0]}]
        large = [one for one in large if one.cell.shape[0] >= 512]
        if large:
            least = min(large, key=lambda one: one.share)
            name = "AVX2" if isa else "products from 512³ up"
            enough = sum(one.share >= bound for one in large)
            measured = f"{enough} of {len(large)}, least {least.share:.0%} ({least.cell.row})"
            bar(f"{name}: share of the loop of multiply-adds", f"{bound:.0%}", measured, enough == len(large))
    against = [one for one in products if one.peer]
    if against:
        worst = max(against, key=lambda one: one.ratio)
        even = sum(one.ratio <= 1.0 for one in against)
        measured = f"{even} of {len(against)}, worst {worst.ratio:.2f}× ({worst.cell.row}, {worst.cell.form})"
        bar("products: at most 1.0× PyTorch", f"{len(against)} of {len(against)}", measured, even == len(against))
    for one in found:
        if one.cell.table in (STEPS, LONG) and one.cell.bar is not None:
            measured = f"{one.ratio:.3f}×"
            bar(one.cell.row, f"{one.cell.bar}×", measured, one.ratio <= one.cell.bar)
        if one.cell.table == TAPE:
            cost = 1e6 * one.ours / NODES
            bar("a node of the tape", "1 µs", f"{cost:.2f} µs", cost <= 1.0)
        if one.cell.table == LONG and "math" in one.engines:
            own = one.engines["tiled"]["memory_bytes"]
            fused, plain = one.engines["fused"]["memory_bytes"], one.engines["math"]["memory_bytes"]
            bar(f"{one.cell.row}: memory against the fused path", "1.2×", f"{own / fused:.2f}×", own <= 1.2 * fused)
            bar(f"{one.cell.row}: memory against the math path", "1/8", f"1/{plain / own:.1f}", 8 * own <= plain)
    return rows


def operators(found: list[Found]) -> str:
    names = {"forward": "forward", "backward-p": "backward *P*", "backward-i": "backward *I*"}
    rows = []
    for one in found:
        suffix = next(suffix for suffix in names if one.cell.key.endswith(suffix))
        floor, limit = one.floor()
        rows.append(
            [
                one.cell.row,
                names[suffix],
                f"{time(one.theirs)}" + (" (channels-last)" if one.peer == "channels_last" else ""),
                time(one.ours),
                ratio(one),
                limit,
                f"{floor / one.ours:.0%}" if limit != "calls" else "",
                deviation(one),
            ]
        )
    return table(["row", "task", "PyTorch", "tiled", "ratio", "limit", "of the floor", "largest deviation"], rows)


def products(found: list[Found]) -> str:
    rows = []
    for name in dict.fromkeys(one.cell.row for one in found):
        for form in FORMS:
            of = [one for one in found if one.cell.row == name and one.cell.form == form]
            own = next((one for one in of if not one.cell.isa), None)
            narrow = next((one for one in of if one.cell.isa == "avx2"), None)
            if own is None:
                continue
            avx2 = [time(narrow.ours), f"{narrow.share:.0%}"] if narrow else ["", ""]
            rows.append([name, form, time(own.theirs), time(own.ours), ratio(own), f"{own.share:.0%}", *avx2])
    return table(["m×n×k", "operands", "PyTorch", "tiled", "ratio", "of the peak", "AVX2", "of the peak"], rows)


def steps(found: list[Found]) -> str:
    header = ["step", "PyTorch", "tiled", "ratio", "of the peak", "largest deviation"]
    return table(
        header,
        [
            [one.cell.row, time(one.theirs), time(one.ours), ratio(one), f"{one.share:.0%}", deviation(one)]
            for one in found
        ],
    )


def chain(found: list[Found]) -> str:
    rows = [
        [one.cell.row, time(one.theirs), time(one.ours), ratio(one), f"{1e9 * one.ours / NODES:.0f} ns"] for one in found
    ]
    return table(["chain", "PyTorch", "tiled", "ratio", "a node"], rows)


def long(found: list[Found]) -> str:
    rows = []
    for one in found:
        floor, limit = one.floor()
        for name, engine in one.engines.items():
            names = {"tiled": "tiled", "fused": "PyTorch, fused", "math": "PyTorch, math"}
            against = f"{engine['median'] / one.theirs:.3f}×"
            memory = size(engine["memory_bytes"])
            own = f"{floor / engine['median']:.0%}"
            rows.append([one.cell.row, names[name], time(engine["median"]), against, limit, own, memory])
    return table(["attention", "engine", "time", "against the fused path", "limit", "of the floor", "memory"], rows)


def ratio(one: Found) -> str:
    text = f"{one.ratio:.3f}×"
    return text if one.cell.bar is None or one.ratio <= one.cell.bar else f"**{text}**"


def deviation(one: Found) -> str:
    deviations = one.result["deviations"]
    if not deviations:
        return ""
    name, value = max(deviations.items(), key=lambda entry: entry[1])
    return f"{value:.1e} (`{name}`)" + ("" if one.agrees else " **disagrees**")
