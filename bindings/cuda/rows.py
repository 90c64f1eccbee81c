"""The rows that need a GPU: bits, speeds, memory and predictions, from the folder that `pack` has filled.

Results are kept in `results.json` beside this file as they come, so that a run that is cut goes on where it was. Every row is told: what was measured, the
bar that it is held to, and whether it holds; a row that failed says why.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
RESULTS = HERE / "results.json"

# networks, sizes and element types whose outputs and gradients of inputs have to have the bits of the simulated device
BITS = [
    ("light", (61, 90), "f32"),
    ("vgg2", (42, 37), "f32", "--winograd"),
    ("light", (40, 37), "f64"),
    ("unet", (48, 64), "f32"),
    ("vgg2", (24, 40), "f32"),
    ("resnet18", (64, 64), "f32"),
    ("seed-002", (50, 41), "f64"),
]


class Failed(Exception):
    """A command that did not end well."""


class Bench:
    def __init__(self, device, small):
        self.device = device
        self.small = small
        self.scratch = Path(tempfile.mkdtemp(prefix="tiled-rows-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.environment = dict(os.environ)
        if (HERE / "kernels").exists() and device.startswith("cuda") and "sim" not in device:
            self.environment["TILED_CUDA_KERNELS"] = str(HERE / "kernels")

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def run(self, command, limit, **environment):
        """What a command prints; `Failed` where it fails or takes longer than its limit."""
        try:
            done = subprocess.run(
                [str(word) for word in command],
                capture_output=True,
                text=True,
                timeout=limit,
                cwd=self.scratch,
                env=self.environment | environment,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{Path(command[0]).name}: took longer than {limit} s") from late
        if done.returncode != 0:
            last = (done.stderr or done.stdout).strip().splitlines()[-3:]
            raise Failed(f"{Path(command[0]).name}: exit {done.returncode}: {'; '.join(last)}")
        return done.stdout

    def tiled(self, *arguments, limit):
        return json.loads(self.run([HERE / "tiled", *arguments, "--json"], limit))

    def zeros(self, name, shape, element_bytes=4):
        """A raw file of a pattern that repeats: what the values are does not matter to a time."""
        path = self.scratch / name
        if not path.exists():
            pattern = b"".join(struct.pack("<f", ((at * 37) % 251) / 251 - 0.5) for at in range(1 << 16))
            left = element_bytes
            for extent in shape:
                left *= extent
            with open(path, "wb") as file:
                while left > 0:
                    left -= file.write(pattern[: min(left, len(pattern))])
        return f"{path}:{'x'.join(map(str, shape))}"


def network_bits(bench, device, limit):
    """A hash of the outputs and of the gradients of inputs of each network of `BITS`."""
    hashes = {}
    for net, (height, width), dtype, *options in BITS:
        channels = 1 if net.startswith("seed") else 3
        name = f"{net}-{height}x{width}-{dtype}"
        image = bench.scratch / f"{name}.raw"
        state = 12345
        values = []
        for _ in range(channels * height * width):
            state = (state * 1103515245 + 12345) % (1 << 31)
            values.append(state / (1 << 30) - 1.0)
        image.write_bytes(struct.pack(f"<{len(values)}{'f' if dtype == 'f32' else 'd'}", *values))
        common = ["--net", net, "--weights", "random:7", "--device", device, "--dtype", dtype]
        common += ["--input", f"{image}:{channels}x{height}x{width}", *options]
        output, gradient = bench.scratch / "y.raw", bench.scratch / "gx.raw"
        bench.tiled("run", *common, "--output", output, limit=limit)
        bench.tiled("grad", *common, "--mode", "eval", "--grad-input", gradient, limit=limit)
        for path in (output, gradient):
            hashes[f"{name} {path.stem}"] = hashlib.sha256(path.read_bytes()).hexdigest()
            path.unlink()
    return hashes


def row_8(bench):
    suite = {"TILED_CUDA_DEVICE": bench.device}
    cases = "2" if bench.small else "300"
    told = []
    for name, limit in (("conformance", 900), ("cpu_bits", 300)):
        arguments = ["check_pool"] if bench.small and name == "conformance" else []
        text = bench.run([HERE / name, *arguments], limit, **suite)
        told.append((name, re.search(r"test result: .*", text).group(0), "passes", "0 failed" in text))
    report = bench.tiled("verify", "--device", bench.device, "--cases", cases, "--seed", "18", limit=600)
    wrong = report["output_mismatches"] + report["input_grad_mismatches"] + report["weight_grad_failures"]
    told.append((f"verify, {cases} cases", f"{wrong} of {report['compared']} numbers differ", "0", wrong == 0))
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    found = network_bits(bench, bench.device, 300)
    same = sum(expected.get(name) == found[name] for name in found)
    told.append(("bits of the simulated device", f"{same} of {len(found)} hashes", "all", same == len(found)))
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer and not bench.small:
        for tool in ("memcheck", "racecheck"):
            checks = ["single::check_pool", "single::check_conv2d_winograd"]
            bench.run([sanitizer, "--tool", tool, "--error-exitcode", "3", HERE / "conformance", *checks], 600, **suite)
            told.append((tool, "clean", "clean", True))
    else:
        told.append(("memcheck, racecheck", "no compute-sanitizer", "clean", None))
    return told


# what tensor cores carry out, by what follows a device's name
PRECISIONS = ("tf32", "f32x3")


def speed(bench, rows, limit, precision=None):
    size = ["--small"] if bench.small else []
    device = bench.device + (f"+{precision}" if precision else "")
    text = bench.run([HERE / "speed", "--device", device, "--rows", rows, *size], limit)
    told = []
    for line in text.splitlines():
        fact = json.loads(line)
        held = None if fact["bar"] is None or bench.small else fact["value"] >= fact["bar"]
        bar = "" if fact["bar"] is None else f"at least {fact['bar']}"
        told.append((fact["name"], f"{fact['value']:.4g} {fact['unit']}", bar, held))
    return told


def row_9(bench):
    return speed(bench, "9", 300)


def row_10(bench):
    told = speed(bench, "10", 300)
    for precision in PRECISIONS:
        told += speed(bench, "10", 120, precision)
    return told


TORCH = """
import json, sys, time, torch
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
def median(call, times=20):
    for _ in range(5): call()
    torch.cuda.synchronize(); all = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(times): call()
        torch.cuda.synchronize(); all.append((time.perf_counter() - begin) / times)
    return sorted(all)[3]
told = {}
a = torch.randn(8192, 8192, device='cuda'); told['product'] = 2 * 8192**3 / median(lambda: a @ a, 5)
def is_winograd(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call(); torch.cuda.synchronize()
    kernels = [event.key.lower() for event in profile.key_averages()]
    return any('winograd' in kernel for kernel in kernels) if kernels else None
for n, c, size, o in ((4, 3, 32, 16), (8, 32, 64, 64), (8, 64, 128, 128)):
    conv = torch.nn.Conv2d(c, o, 3, padding=1).cuda(); x = torch.randn(n, c, size, size, device='cuda', requires_grad=True)
    g = torch.randn(n, o, size, size, device='cuda')
    for after, allowed in (('', False), (', tf32', True)):
        torch.backends.cudnn.allow_tf32 = allowed
        y = conv(x)
        calls = {'forward': lambda: conv(x), 'backward': lambda: torch.autograd.grad(y, (x, conv.weight, conv.bias), g, retain_graph=True)}
        for name, call in calls.items():
            told[f'{n}x{c}x{size} to {o} {name}{after}'] = median(call)
            told[f'{n}x{c}x{size} to {o} {name}{after}, winograd'] = is_winograd(call)
    torch.backends.cudnn.allow_tf32 = False
x = torch.randn(1, 64, 4096, 4096, device='cuda'); told['max_pool'] = median(lambda: torch.nn.functional.max_pool2d(x, 2))
print(json.dumps(told))
"""


def last_json(text):
    """What a program printed last, after whatever its libraries had to say."""
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError) as reason:
        raise Failed(f"no result in what was printed: {reason}") from reason


def row_11(bench):
    ours = {}
    for precision in (None, "tf32"):
        for name, value, *_ in speed(bench, "11", 300, precision):
            ours[name + (f", {precision}" if precision else "")] = float(value.split()[0])
    try:
        torch = last_json(bench.run([sys.executable, "-c", TORCH], 300))
    except Failed as reason:
        return [(name, f"{value:.3g} ms", str(reason), None) for name, value in ours.items()]
    told = [("torch, f32 product of 8192³", f"{torch['product'] / 1e12:.1f} TFLOP/s", "", None)]
    for name, value in ours.items():
        peer = name.removesuffix(", Winograd")
        if peer not in torch:
            continue
        ratio, filters = value / 1e3 / torch[peer], torch.get(f"{peer}, winograd", False)
        is_fastest = value == min(ours[peer], ours.get(f"{peer}, Winograd", ours[peer]))
        bar = small_bar(name, filters, is_fastest)
        way = {True: ", which filters by Winograd", False: "", None: ", by kernels that the profiler did not see"}[filters]
        measured = f"{value:.3g} ms, {ratio:.2f}× torch{way}"
        told.append((name, measured, f"at most {bar}×" if bar else "", ratio <= bar if bar else None))
    return told


def small_bar(name, filters, is_fastest):
    """What a small convolution is held to: sums against sums, the fastest that there is of ours against Winograd's filtering of torch's."""
    if name.endswith(", tf32"):
        return 1.3
    if filters:
        return 1.2 if is_fastest else None
    if filters is None or name.endswith(", Winograd"):
        return None
    return 0.8 if name == "max_pool" else 1.0 if "128 to 128" in name else 1.3


class Watch:
    """The most memory of the device that is in use, and how much of the time kernels run there, as nvidia-smi says it."""

    def __enter__(self):
        self.most, self.ended = 0, threading.Event()
        self.busy = []
        self.before = self.ask("memory.used")
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def ask(self, what):
        """A number; none where there is no such program, or it does not know."""
        query = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
        if not shutil.which(query[0]):
            return None
        done = subprocess.run(query, capture_output=True, text=True, check=False)
        first = done.stdout.split()[:1]
        return int(first[0]) if done.returncode == 0 and first and first[0].isdigit() else None

    def watch(self):
        while self.before is not None:
            self.most = max(self.most, self.ask("memory.used") or 0)
            busy = self.ask("utilization.gpu")
            if busy is not None:
                self.busy.append((time.time(), busy))
            if self.ended.wait(0.1):
                return

    def took(self):
        """Bytes; none where nobody tells."""
        return None if self.before is None or self.most == 0 else (self.most - self.before) << 20

    def idle(self):
        """Percent of the time, a second after the first kernel to a second before the last, as each number is of up to a second; none where
        too few were told."""
        at_work = [at for at, busy in self.busy if busy > 0]
        within = [busy for at, busy in self.busy if at_work and at_work[0] + 1.0 < at < at_work[-1] - 1.0]
        return 100 - sum(within) / len(within) if len(within) >= 5 else None


def ends(bench, net, size, memory, limit, precision="f32", runs=0, mode="grad", hold="auto", where="host"):
    """What `cuda_ends` tells of a run whose image and result lie in memory: of the host, or of the device."""
    device = bench.device + ("" if precision == "f32" else f"+{precision}")
    return last_json(bench.run([HERE / "cuda_ends", net, size, memory, device, runs, mode, hold, where], limit))


def train(bench, net, size, memory, bar, limit, precision="f32", idle_bar=None, hold="auto", runs=0):
    """A forward and a backward pass over a picture on the host, with all gradients."""
    common = ["--net", net, "--memory", memory, "--device", bench.device, "--mode", "eval"]
    common += ["--precision", precision, "--hold", hold]
    plan = bench.tiled("plan", *common, "--train", "--loss", "none", "--grad-input", "--input", f"3x{size}x{size}", limit=60)
    with Watch() as watch:
        report = ends(bench, net, size, memory, limit, precision, runs, hold=hold)
    seconds, predicted = report["host"], report["predicted"]
    name, device = f"{net} {size}² in {memory / 2**30:.3g} GiB", plan["device"]
    name += "" if precision == "f32" else f", {precision}"
    told = [(name, f"{seconds:.2f} s", f"at most {bar:.3g} s" if bar else "", seconds <= bar if bar else None)]
    # a simulated device has the times of none
    is_real = "sim" not in bench.device
    held = abs(seconds / predicted - 1.0) <= 0.25 if is_real else None
    told.append((f"{name}: predicted", f"{predicted:.2f} s", "within 25 %", held))
    stated = device["device_bytes"] + device["driver_bytes"]
    took = watch.took()
    if took is not None and is_real:
        told.append((f"{name}: memory", f"{took / 2**20:.0f} MiB", f"at most {stated / 2**20:.0f} MiB", took <= stated))
    if idle_bar and (idle := watch.idle()) is not None:
        told.append((f"{name}: no kernel runs", f"{idle:.1f} % of the time", f"at most {idle_bar} %", idle <= idle_bar))
    return told, seconds, plan


def row_12(bench):
    size, memory = (32, 1 << 30) if bench.small else (20480, 8 << 30)
    told, seconds, _ = train(bench, "vgg16", size, memory, None if bench.small else 24, 200, idle_bar=5)
    told += train(bench, "vgg16", size, memory, None if bench.small else 9, 150, "tf32")[0]
    return told + train(bench, "vgg16", size, memory, None if bench.small else seconds, 150, "f32x3")[0]


def row_13(bench):
    size, memory, bar = (32, 1 << 30, None) if bench.small else (20480, 8 << 30, 8)
    return train(bench, "darknet19", size, memory, bar, 400, idle_bar=10)[0]


# torch's own way to less memory: each stage between poolings is computed again in the backward pass
CHECKPOINTING = """
import json, sys, time, torch
from torch.utils.checkpoint import checkpoint
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
size = int(sys.argv[1])
stages, channels = [], 3
for convs, to in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
    layers = []
    for _ in range(convs):
        layers += [torch.nn.Conv2d(channels, to, 3, padding=1), torch.nn.ReLU(inplace=True)]
        channels = to
    stages.append(torch.nn.Sequential(*layers, torch.nn.MaxPool2d(2)).cuda())
x = torch.randn(1, 3, size, size, device='cuda', requires_grad=True)
def step():
    y = x
    for stage in stages: y = checkpoint(stage, y, use_reentrant=False)
    y.sum().backward(); torch.cuda.synchronize()
all = []
for run in range(4):
    begin = time.perf_counter(); step(); all.append(time.perf_counter() - begin)
    x.grad = None
    # the first run tries ways to convolve, with memory of their own
    if run == 0: torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
print(json.dumps({'seconds': sorted(all[1:])[1], 'bytes': torch.cuda.max_memory_allocated()}))
"""


def row_14(bench):
    told = []
    for size in (32,) if bench.small else (4096, 8192):
        all_memory = 1 << 30 if bench.small else 130 << 30
        common = ["--net", "vgg16", "--memory", all_memory, "--device", bench.device, "--mode", "eval", "--hold", "materialise"]
        whole = bench.tiled("plan", *common, "--train", "--loss", "none", "--grad-input", "--input", f"3x{size}x{size}", limit=60)
        untiled = attempt(
            told,
            f"vgg16 {size}², untiled",
            lambda size=size, most=all_memory: train(bench, "vgg16", size, most, None, 300, hold="materialise", runs=1),
        )
        for part, bar in ((8, 1.15), (16, 1.08 if size == 8192 else 1.15)):
            memory = max(whole["plan_peak_bytes"] // part, 0 if not bench.small else 1 << 29)
            name = f"vgg16 {size}² in 1/{part}"
            tiled = attempt(told, name, lambda size=size, memory=memory: train(bench, "vgg16", size, memory, None, 300, runs=1))
            if tiled and untiled:
                ratio = tiled[1] / untiled[1]
                held = None if bench.small else ratio <= bar
                told.append((name, f"{ratio:.3f}× untiled ({untiled[1]:.2f} s)", f"at most {bar}×", held))
            if tiled and part == 8:
                told += against_checkpointing(bench, size, tiled[1], memory)
    return told


def attempt(told, name, carry_out):
    """What a measurement gives; none where it failed, which is told."""
    try:
        return carry_out()
    except Failed as reason:
        told.append((name, str(reason), "", None))
        return None


def against_checkpointing(bench, size, seconds, memory):
    name = f"vgg16 {size}², torch checkpointing"
    try:
        torch = last_json(bench.run([sys.executable, "-c", CHECKPOINTING, size], 300))
    except Failed as reason:
        return [(name, str(reason), "", None)]
    faster = seconds / torch["seconds"]
    told = [(name, f"{faster:.3f}× its {torch['seconds']:.2f} s", "below 1×", faster < 1.0)]
    share = memory / torch["bytes"]
    held = share <= 1 / 6 if size == 4096 else None
    return told + [(f"{name}: memory", f"{share:.3f}× its {torch['bytes'] / 2**30:.1f} GiB", "at most 0.167×", held)]


def row_15(bench):
    size, memory, runs = (64, 1 << 30, 1) if bench.small else (20480, 8 << 30, 3)
    facts = {name: float(value.split()[0]) for name, value, *_ in speed(bench, "peaks", 200)}
    told = []
    both = attempt(told, f"light {size}²", lambda: ends(bench, "light", size, memory, 200, runs=runs, mode="run", where="host,device"))
    if both:
        sent, received = 12 * size * size, 32 * (size // 4) ** 2 * 4
        copies = max(sent / (facts["pinned to device"] * 1e9), received / (facts["device to pinned"] * 1e9))
        floor = max(copies, both["device"])
        ratio = both["host"] / floor
        held = None if bench.small else ratio <= 1.15
        measured = f"{both['host']:.3f} s, {ratio:.2f}× the larger of its copies ({copies:.3f} s) and the device ({both['device']:.3f} s)"
        told.append((f"light {size}², host to host", measured, "at most 1.15×", held))
    net = "light" if bench.small else "vgg16"
    both = attempt(told, f"{net} {size}²", lambda: ends(bench, net, size, memory, 420, where="host,device"))
    if both:
        ratio = both["host"] / both["device"]
        held = None if bench.small else ratio <= 1.03
        told.append((f"{net} {size}² from the host", f"{ratio:.3f}× from the device ({both['device']:.2f} s)", "at most 1.03×", held))
    return told


# the most telling first
ROWS = {8: row_8, 12: row_12, 10: row_10, 9: row_9, 13: row_13, 11: row_11, 14: row_14, 15: row_15}


def table(results):
    lines = ["| row | what | measured | bar | holds |", "|---|---|---|---|---|"]
    marks = {True: "yes", False: "**no**", None: "—"}
    for row in sorted(results, key=int):
        for name, value, bar, held in results[row]["facts"]:
            lines.append(f"| {row} | {name} | {value} | {bar} | {marks[held]} |")
        if results[row].get("reason"):
            lines.append(f"| {row} | failed | {results[row]['reason']} | | **no** |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes for the simulated device")
    parser.add_argument("--rows", help="these rows, again, as in 8,12")
    parser.add_argument("--expect", action="store_true", help="record the bits of the simulated device, and nothing else")
    arguments = parser.parse_args()
    bench = Bench("cuda-sim" if arguments.expect else arguments.device, arguments.small)
    try:
        if arguments.expect:
            EXPECTED.write_text(json.dumps(network_bits(bench, "cuda-sim", 600), indent=1))
            return 0
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        wanted = [int(row) for row in arguments.rows.split(",")] if arguments.rows else None
        for row, carry_out in ROWS.items():
            if row not in wanted if wanted else str(row) in results and not results[str(row)].get("reason"):
                continue
            begin = time.time()
            try:
                result = {"facts": carry_out(bench)}
            except Exception as reason:  # one row that fails leaves the others
                result = {"facts": [], "reason": f"{type(reason).__name__}: {reason}"}
            results[str(row)] = result | {"seconds": round(time.time() - begin, 1)}
            RESULTS.write_text(json.dumps(results, indent=1))
            print(f"row {row}: {results[str(row)]['seconds']} s {result.get('reason', '')}", file=sys.stderr)
        page = table(results)
        (HERE / "results.md").write_text(page + "\n")
        print(page)
        is_wrong = any(result.get("reason") or any(fact[3] is False for fact in result["facts"]) for result in results.values())
        return 1 if is_wrong else 0
    finally:
        bench.close()


if __name__ == "__main__":
    sys.exit(main())
