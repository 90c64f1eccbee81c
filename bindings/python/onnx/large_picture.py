"""A U-Net over a picture that no framework holds: bytes in, class numbers out, compared with onnxruntime on a crop.

    python bindings/python/onnx/large_picture.py                          16384×16384 in 128 MiB
    python bindings/python/onnx/large_picture.py --extent 4096 --crop 512

The network has random weights and, in its batch norms, the statistics of one batch; torch exports it. `tiled run`
reads the picture from a PNG and writes the class of each pixel into another. Its process may take the budget and
64 MiB. The crop is the middle of the picture with as much around it as any of its classes depends on; there
onnxruntime's classes are wanted, but where its two best scores lie closer than rounding. Wants torch, onnx,
onnxruntime and Pillow, in an environment outside the tree.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
# poolings, and so the multiple of rows and columns at which the picture and a crop of it are pooled alike
LEVELS = 4
MULTIPLE = 2**LEVELS
# rows and columns around a pixel that its class may depend on: two convolutions of 3×3 on the way down and up at each
# level, where a pixel is 2^level pixels of the picture, and the rounding of each pooling
HALO = 256
SLACK_BYTES = 64 << 20
CLASSES = 6
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="tiled-large-", dir=options.folder) as folder:
        run(options, Path(folder))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/tiled")
    parser.add_argument("--extent", type=int, default=16384)
    parser.add_argument("--crop", type=int, default=1024)
    parser.add_argument("--memory", type=int, default=128, help="MiB")
    parser.add_argument("--width", type=int, default=16, help="channels of the first level")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None, help="where the files lie")
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path) -> None:
    model, picture, classes = folder / "unet.onnx", folder / "picture.png", folder / "classes.png"
    # in processes of their own, so that this one is small when it starts `tiled`
    apart(f"write_model({str(model)!r}, {options.width})")
    apart(f"write_picture({str(picture)!r}, {options.extent})")
    command: list[Any] = [options.program, "run", "--net", model, "--input", picture, "--argmax", "--output", classes]
    command += ["--memory", f"{options.memory}MiB", "--threads", options.threads, "--scratch", folder]
    command += ["--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD))]
    words = [str(word) for word in command]
    print(" ".join(words), flush=True)
    begin = time.monotonic()
    process = subprocess.Popen(words)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    if status != 0:
        sys.exit(f"tiled ended with {os.waitstatus_to_exitcode(status)}")
    peak, most = usage.ru_maxrss << 10, (options.memory << 20) + SLACK_BYTES
    took = f"{seconds:.1f} s, peak of the process {peak / 2**20:.1f} MiB of {most >> 20}"
    print(f"{options.extent}x{options.extent}: {took}", flush=True)
    apart(f"compare({str(model)!r}, {str(picture)!r}, {str(classes)!r}, {options.crop})")
    if peak > most:
        sys.exit("the process took more than its budget and 64 MiB")


def apart(call: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import large_picture; large_picture.{call}"
    subprocess.run([sys.executable, "-c", code], check=True)


def write_model(path: str, width: int) -> None:
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [width * 2**level for level in range(LEVELS + 1)]
            self.down = nn.ModuleList(block(a, b) for a, b in zip([3, *widths], widths, strict=False))
            pairs = list(zip(widths[1:], widths, strict=False))[::-1]
            self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
            self.join = nn.ModuleList(block(2 * b, b) for _, b in pairs)
            self.head = nn.Conv2d(width, CLASSES, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            skips = []
            for level, down in enumerate(self.down):
                x = down(x if level == 0 else nn.functional.max_pool2d(x, 2))
                skips.append(x)
            for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
                x = join(torch.cat([up(x), skip], dim=1))
            return self.head(x)

    torch.manual_seed(1)
    net = UNet()
    for norm in (module for module in net.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.momentum = None  # the mean of all batches, of which there is one
    with torch.no_grad():
        net.train()(torch.randn(2, 3, 256, 256))
    axes = {0: "batch", 2: "height", 3: "width"}
    torch.onnx.export(
        net.eval(),
        (torch.zeros(1, 3, 64, 64),),
        path,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": axes, "y": axes},
        opset_version=17,
        dynamo=False,
    )


def write_picture(path: str, extent: int) -> None:
    import numpy as np

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    rng = np.random.default_rng(1)
    noise = rng.integers(0, 64, (64, extent, 3), dtype=np.uint8)
    x = np.arange(extent, dtype=np.int64)[:, None] * np.array([1, 2, 3])
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", extent, extent, 8, 2, 0, 0, 0)))
        pack = zlib.compressobj(1)
        for y in range(extent):
            slow = 96 + 95 * np.sin(x / 97 + y / 61) * np.cos(y / 131)
            row = (slow.astype(np.uint8) + noise[(y * 31) % 64]).tobytes()
            if packed := pack.compress(b"\0" + row):
                file.write(chunk(b"IDAT", packed))
        file.write(chunk(b"IDAT", pack.flush()) + chunk(b"IEND", b""))


def compare(model: str, picture: str, classes: str, crop: int) -> None:
    import numpy as np
    import onnxruntime
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(picture) as whole, Image.open(classes) as decided:
        extent = whole.width
        begin = (extent - crop) // 2 // MULTIPLE * MULTIPLE
        low, high = max(begin - HALO, 0), min(begin + crop + HALO, extent)
        pixels = np.asarray(whole.crop((low, low, high, high)))
        got = np.asarray(decided.crop((begin, begin, begin + crop, begin + crop)))
    values = pixels.astype(np.float32) / np.float32(255)
    values = (values - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"x": values.transpose(2, 0, 1)[None]})
    inside = slice(begin - low, begin - low + crop)
    scores = scores[0, :, inside, inside]
    best = np.sort(scores, axis=0)
    is_close = best[-1] - best[-2] <= 1e-5 * np.abs(scores).max()
    differs = got != scores.argmax(axis=0)
    wrong = int((differs & ~is_close).sum())
    counts = np.bincount(got.ravel(), minlength=CLASSES).tolist()
    close = f"{int((differs & is_close).sum())} of {int(is_close.sum())} that are too close to tell"
    print(f"crop of {crop}x{crop} at {begin}: {wrong} classes differ from onnxruntime's, {close}")
    print(f"pixels of each class: {counts}")
    if wrong:
        sys.exit("classes differ from onnxruntime's")


if __name__ == "__main__":
    main()
