"""The measurements as a page."""

from __future__ import annotations

from typing import Any

from comparison import ARBITER, QUIET
from workloads import WINOGRAD, Bar, Measured, Workload, bars

Json = dict[str, Any]

HEAD = """\
# Benchmarks

<!-- Written by bindings/python/bench/peers.py; do not edit. -->

Ours and the peers, alternately in one run, with the same threads, weights and images, in f32.
Take the ratios, not the seconds.
"""

METHOD = """\
## How it is measured

- Every engine is a process of its own that stays alive and waits while another one runs. It runs once on a
  64×64 part of the image, which loads its code, then once on the image, which gives its memory. Then the
  engines take turns, from another one on in each round. Runs shorter than 0.2 s are repeated within a turn.
  Times are medians over all runs.
- The time is that of the run alone: models are built, compiled and optimised before, plans are made before.
  Ours is from tensor to tensor in memory, NCHW on both sides, both conversions included. torch channels-last
  gets its input in its own layout. onnxruntime and OpenVINO have input and output bound before.
- Memory is the peak of the process's resident memory (`VmHWM`) during the first run beyond what was resident
  before, without the input, the output and the gradient of the input. For the peers the model is loaded and
  compiled before; for tiled the plan and the memory of the executor count, which lets go of the weights that were
  loaded as it packs them, in inference.
- GFLOP/s count the multiply-adds of convolutions and linear layers, times two: once for inference, twice for
  the gradients alone, three times for a training step. The peak is a loop of multiply-adds in registers, the
  bandwidth a loop of copies of 64 MiB a thread, bytes read and bytes written. Both run on as many threads as the
  engine, before each round and after the last, and their medians count, as the engines' do: clock and memory are
  shared with what else runs on the host. So is the place of the cores: a cache line that one has written takes three times as
  long to the other where they share no cache. Bars name the share of the fastest slice of the multiply-adds, of 20 ms, too.
  Winograd's filtering does fewer multiplications than are counted, and may exceed the peak.
- A training step gives the output, and the gradients of its sum with respect to the input and all parameters.
- Agreement: outputs differ from those of torch NCHW by at most {output:.0e} of the largest element, gradients
  by at most {gradient:.0e} in Euclidean norm. Where an engine does not keep to that, all of them are compared with
  torch in float64 instead, by the same bounds; the section says so. In a training step roundings may be magnified beyond these
  bounds in every engine, and a bias before a batch norm has no gradient but them: there ours in float64 is held against torch in
  float64 (`hardsigmoid` by its formula, as torch's gradient has 1/6 in single precision), by {double:.0e} (of a gradient below
  {small:.0e} of the largest one: of that), on a part of the image of at most {part}², and all gradients of float32 together may
  differ from the reference by {roundings:.0f} times as much as those of torch's other layout. A bar is missed where ours disagrees.
- The models of rows 11 and 12 have random weights and the statistics of one batch of 256² images. They are exported with the
  extents that are measured, for inference with batch norms folded into convolutions; a training step has the statistics of the
  image in every batch norm that sees more than one value of a channel, and drops nothing at random. Of memory a tenth is asked
  for where the weights alone take less.
- Engines that do not fit in memory beside each other are loaded anew for each of their turns, and run once before it is timed.
- The best peer is the fastest one. `tiled` is the plan that the planner chooses, `tiled, untiled` holds whole
  tensors, `tiled, in a tenth` has a budget of a tenth of the memory of the peer that takes least: its bar asks one plan for
  both, the memory and the time.
"""


WINOGRAD_HEAD = """\
## With Winograd's filtering

Convolutions 3×3 with a quarter of the multiplications, where a plan is asked for it (`--winograd`). The bits are the same for every
tiling, the roundings others than those of sums, so no bar rests on it. Times and memory against the best peer; deviations
of the output from torch NCHW, as below. The peers run with their own choice of algorithms.

"""


def page(workloads: list[Workload], results: Json, command: str) -> str:
    measured = [Measured(workload, results["workloads"][workload.key]) for workload in workloads]
    found = bars(measured)
    passed = sum(bar.passes for bar in found)
    parts = [HEAD, machine(results), f"```sh\n{command}\n```\n"]
    parts.append(f"## Bars\n\n{passed} of {len(found)} are met.\n")
    noisy = sum(one.result["others"] > QUIET for one in measured)
    if noisy:
        parts.append(f"Other programs ran during {noisy} of {len(measured)} workloads, which are marked below.\n")
    parts.append(table(["#", "workload", "bar", "measured", ""], [bar_row(bar) for bar in found]))
    parts.append(winograd(measured))
    parts.append("## Measurements\n")
    parts.extend(section(one) for one in measured)
    parts.append(METHOD.format(**results["tolerances"]))
    return "\n".join(parts)


def machine(results: Json) -> str:
    facts = results["machine"]
    engines: dict[str, Json] = {}
    for workload in results["workloads"].values():
        for engine in workload["engines"].values():
            if "hello" in engine:
                engines[engine["hello"]["name"]] = engine["hello"]
    lines = [f"Machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory']}, {facts['system']}.", ""]
    rows = [[e["name"], e["version"], e.get("settings") or e.get("backend", "")] for e in engines.values()]
    lines.append(table(["engine", "version", "settings"], sorted(rows)))
    return "\n".join(lines)


def of_output(engine: Json) -> str:
    """How far an output is from that of the reference, where it ran."""
    return f"{engine['deviations']['output']:.1e}" if "deviations" in engine else "unknown"


def winograd(measured: list[Measured]) -> str:
    """What plans that allow it reach; nothing where none was measured."""
    rows = []
    for one in measured:
        if WINOGRAD.name not in one.engines or one.ours is None or one.peer is None:
            continue
        row, peer, ours = one.workload.row, one.seconds(one.peer), one.engines[one.ours]
        filtered = one.engines[WINOGRAD.name]
        rows.append(
            [
                one.workload.title,
                one.peer,
                f"{one.seconds(one.ours) / peer:.3f}×",
                f"{one.seconds(WINOGRAD.name) / peer:.3f}×",
                "" if row == 6 else f"1/{one.engines[one.peer]['memory_bytes'] / max(1, filtered['memory_bytes']):.1f}",
                of_output(ours),
                of_output(filtered) + ("" if filtered.get("agrees", True) else " **disagrees**"),
            ]
        )
    if not rows:
        return ""
    header = ["workload", "best peer", "time, sums", "time, Winograd", "memory", "deviation, sums", "Winograd"]
    return WINOGRAD_HEAD + table(header, rows)


def bar_row(bar: Bar) -> list[str]:
    return [str(bar.row), bar.what, bar.bound, bar.measured, "met" if bar.passes else "**missed**"]


def section(one: Measured) -> str:
    result, workload = one.result, one.workload
    known = next((name for name, engine in one.engines.items() if "peaks" in engine), None)
    lines = [f"### {workload.title}", ""]
    facts = [f"{result['date']}, rounds: {result['rounds']}, threads: {result['threads']}"]
    if result["shrink"] > 1:
        facts.append(f"**extents divided by {result['shrink']}**")
    if result["others"] > QUIET:
        facts.append(f"**other programs took {result['others']:.0%} of the machine**")
    if any(engine.get("reference") == ARBITER for engine in one.engines.values()):
        facts.append(f"deviations are from {ARBITER}")
    double = next((engine["double"] for engine in one.engines.values() if "double" in engine), None)
    if double:
        ours, layouts = double["deviation"], double.get("layouts", 0.0)
        facts.append(f"in float64 ours is {ours:.1e} from torch (`{double['of']}`), its other layout {layouts:.1e}")
        of = {name: engine["double"]["spread"] for name, engine in one.engines.items() if "double" in engine}
        facts.append(
            f"all gradients together deviate by {', '.join(f'{spread:.1e} ({name})' for name, spread in of.items())}"
        )
    if known:
        multiply_adds = one.peak(known, "multiply_add_gflops")
        fastest = max(one.engines[known]["peaks"]["fastest_multiply_add_gflops"])
        copies = one.peak(known, "copy_gb_per_second")
        facts.append(
            f"multiply-adds {multiply_adds:.0f} GFLOP/s (fastest slice {fastest:.0f}), copies {copies:.1f} GB/s"
        )
        trips = sorted(one.engines[known]["peaks"].get("round_trip_ns", [0]))
        if trips[-1] > 0:
            facts.append(f"a cache line goes to the other core and back in {trips[0]:.0f} to {trips[-1]:.0f} ns")
    lines += ["; ".join(facts) + ".", ""]
    best = one.peer
    header = ["engine", "median", "fastest to slowest"]
    header += ["against the best peer"] if best else []
    has_flops = any(engine.get("flops") for engine in one.engines.values())
    header += ["GFLOP/s", "of the peak"] if has_flops else ["of the copy loop"]
    header += ["ns a pixel"] if workload.row == 10 else []
    header += ["memory", "planned", "largest deviation"]
    rows = []
    for name, engine in result["engines"].items():
        if "seconds" not in engine:
            rows.append([name, f"failed: {engine['error']}"] + [""] * (len(header) - 2))
            continue
        row = [
            name,
            time(one.seconds(name)),
            f"{time(min(engine['seconds']))} to {time(max(engine['seconds']))}",
        ]
        row += [f"{one.seconds(name) / one.seconds(best):.3f}×"] if best else []
        row += [f"{one.gflops(name):.0f}", f"{one.share(name):.0%}"] if has_flops else [f"{one.copy_share(name):.0%}"]
        row += [f"{one.seconds(name) / engine['pixels'] * 1e9:.2f}"] if workload.row == 10 else []
        planned = engine.get("planned_bytes")
        row += [size(engine["memory_bytes"]), size(planned) if planned else "", deviation(engine)]
        rows.append(row)
    return "\n".join([*lines, table(header, rows)])


def deviation(engine: Json) -> str:
    deviations = engine.get("deviations")
    if not deviations:
        return ""
    name, value = max(deviations.items(), key=lambda entry: entry[1])
    return f"{value:.1e} (`{name}`)" + ("" if engine["agrees"] else " **disagrees**")


def time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 0.995:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 100 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count < 1e8 else f"{count / 1e6:.0f} MB"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
