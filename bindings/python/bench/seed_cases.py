"""What seed003.py compares: cases, their arithmetic and memory, and the bars that we hold ourselves to."""

from __future__ import annotations

from dataclasses import dataclass, field

OPERATORS = "operators"
PRODUCTS = "products"
STEPS = "steps"
TAPE = "tape"
LONG = "long"
TABLES = (OPERATORS, PRODUCTS, STEPS, TAPE, LONG)

IN_CACHE_BYTES = 2e6  # what the second cache of two cores holds moves at the speed of the arithmetic


@dataclass(frozen=True)
class Cell:
    """One case, one task: a time of ours and one of each torch."""

    table: str
    key: str
    row: str  # its name in the table
    kind: str  # as both workers know it
    shape: tuple[int, ...]
    task: str  # forward, backward, both, step
    inputs_need: bool
    flops: float
    bytes: float  # read and written once, whatever is computed
    form: str = ""
    torch: tuple[str, ...] = ("contiguous",)
    bar: float | None = None  # times of ours by those of torch
    isa: str = ""  # forced for ours, which then has no peer
    exponentials: int = 0
    bound: str = field(default="", compare=False)


def all_cells() -> list[Cell]:
    return [*operators(), *products(), *steps(), *tape(), *long()]


def tasks(name: str, kind: str, shape: tuple[int, ...], sizes: dict[str, float], **more: object) -> list[Cell]:
    """Forward, backward with gradients of the parameters alone (P), backward with those of the inputs too (I)."""
    flops, read, written, parameters = sizes["flops"], sizes["x"], sizes["y"], sizes["w"]
    exponentials = int(sizes.get("exponentials", 0))
    key = name.replace(" ", "-").replace(",", "").lower()
    make = lambda task, needs, times, moved, suffix: Cell(  # noqa: E731
        OPERATORS,
        f"{key}-{suffix}",
        name,
        kind,
        shape,
        task,
        needs,
        times * flops,
        4 * moved,
        bar=1.0,
        exponentials=exponentials if task == "forward" else 0,
        **more,
    )
    cells = [make("forward", False, 1, read + written + parameters, "forward")]
    # gradients are added: read and written; a sum's gradient is one number
    if parameters:
        cells.append(make("backward", False, 1, read + 2 * parameters, "backward-p"))
        cells.append(make("backward", True, 2, read + 3 * parameters + 2 * read, "backward-i"))
    else:
        cells.append(make("backward", True, 0, written + 2 * read, "backward-i"))
    return cells


def operators() -> list[Cell]:
    cells = []
    for name, (n, i, o) in zip("abc", [(32, 64, 128), (32, 1024, 2048), (128, 2048, 4096)], strict=True):
        sizes = {"flops": 2.0 * n * i * o, "x": n * i, "y": n * o, "w": i * o + o}
        cells += tasks(f"Linear {name}", "linear", (n, i, o), sizes)
    for name, (n, c, s, o) in zip("abc", [(4, 3, 32, 16), (8, 32, 64, 64), (8, 64, 128, 128)], strict=True):
        pixels = n * (s - 2) ** 2
        sizes = {"flops": 18.0 * pixels * c * o, "x": n * c * s * s, "y": pixels * o, "w": 9 * c * o + o}
        layouts = ("contiguous", "channels_last")
        cells += tasks(f"Conv2d {name}", "conv2d", (n, c, s, o), sizes, torch=layouts)
    rows = [(16, 32, 64, 4), (32, 64, 128, 8), (32, 128, 256, 8)]
    for name, (first, second, e, heads) in zip("abc", rows, strict=True):
        for letter, form in (("S", "sequence first"), ("B", "batch first")):
            t, n = (first, second) if letter == "S" else (second, first)
            flops = 8.0 * t * n * e * e + 4.0 * n * t * t * e
            sizes = {"flops": flops, "x": n * t * e, "y": n * t * e, "w": 4 * e * e + 4 * e}
            sizes["exponentials"] = n * heads * t * t
            cells += tasks(f"Attention {name}, {letter}", "attention", (t, n, e, heads), sizes, form=form)
    for name, (rows_of, columns) in zip("abc", [(128, 64), (512, 256), (1024, 512)], strict=True):
        size = rows_of * columns
        sizes = {"flops": 0.0, "x": size, "y": size, "w": 0, "exponentials": size}
        cells += tasks(f"Softmax {name}", "softmax", (rows_of, columns), sizes)
    return cells


FORMS = ("plain", "second transposed", "first transposed")


def products() -> list[Cell]:
    cells = []
    cubes = [(size,) * 3 for size in (64, 128, 256, 512, 1024, 2048, 4096)]
    flat = [(64, 4096, 512), (4096, 64, 512), (512, 512, 4096), (512, 4096, 64)]
    for m, n, k in cubes + flat:
        for form in FORMS:
            size = {"flops": 2.0 * m * n * k, "bytes": 4.0 * (m * k + k * n + m * n)}
            key = f"product-{m}x{n}x{k}-{form.replace(' ', '-')}"
            args = ("product", (m, n, k), "forward", False, size["flops"], size["bytes"], form)
            title = f"{m}×{n}×{k}"
            cells.append(Cell(PRODUCTS, key, title, *args, bar=1.0))
            if m == n == k and m >= 512:
                cells.append(Cell(PRODUCTS, f"{key}-avx2", title, *args, torch=(), isa="avx2"))
    return cells


def steps() -> list[Cell]:
    conv = 2.0 * 64 * 64 * (9 * 16 + 9 * 16 * 32) + 2.0 * 64 * (512 * 64 + 640)
    tokens, e = 64 * 16, 64
    layer = 2.0 * tokens * e * (4 * e + 2 * 2 * e) + 4.0 * tokens * 16 * e
    vit = 2 * layer + 2.0 * tokens * 4 * e + 2.0 * 64 * e * 10
    tokens, e, wide = 32 * 128, 256, 1024
    encoder = 2.0 * tokens * e * (4 * e + 2 * wide) + 4.0 * tokens * 128 * e
    memory = 4.0 * 7 * (4 * e * e + 2 * e * wide)
    name = "TransformerEncoderLayer 32×128×256, 8 heads, 1024"
    return [
        Cell(STEPS, "cnn", "digits CNN, batch 64", "cnn", (64,), "step", False, 3 * conv, 4.0 * 7 * 40_000, bar=0.7),
        Cell(STEPS, "vit", "digits ViT, batch 64", "vit", (64,), "step", False, 3 * vit, 4.0 * 7 * 68_000, bar=0.6),
        Cell(STEPS, "encoder", name, "encoder", (32, 128, 256, 8, 1024), "step", False, 3 * encoder, memory, bar=0.85),
    ]


NODES = 1000


def tape() -> list[Cell]:
    title = f"{NODES} additions of one element, forward and backward"
    return [Cell(TAPE, "chain", title, "chain", (NODES,), "both", True, 0.0, 0.0)]


def long() -> list[Cell]:
    cells = []
    n, t, e, heads = 32, 1024, 256, 8
    for form in ("all keys", "causal"):
        share = 0.5 if form == "causal" else 1.0
        flops, moved = 4.0 * n * t * t * e * share, 4.0 * n * t * e
        scores = int(n * heads * t * t * share)
        for task, times, arrays in (("forward", 1.0, 4), ("both", 3.5, 11)):
            words = "forward" if task == "forward" else "forward and backward"
            key = f"long-{form.replace(' ', '-')}-{task}"
            peers = ("fused", "math") if task == "both" else ("fused",)
            args = ("heads", (n, heads, t, e // heads), task, task == "both", times * flops, arrays * moved, form, peers)
            cells.append(Cell(LONG, key, f"{form}, {words}", *args, bar=1.0, exponentials=scores))
    return cells
