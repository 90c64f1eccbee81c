"""The networks that people have: models of the zoo, given to all engines with the same weights.

    python exported.py resnet50 training 1 3 1024 1024 folder

writes small.onnx for the part that warms the code up (inference), or part.onnx for that which is compared in float64 (training),
weights.pt for PyTorch itself, and last network.onnx for images of that shape.
For inference batch norms are folded into convolutions, as exporters do; for training they stay, and parameters keep their names.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from protocol import COMPANIONS, PART, WARM

OPSET = 17  # the first with layer norm
# what drops values at random stays in evaluation, so that all engines compute the same
RANDOM = ("Dropout", "StochasticDepth")
# of smaller images, deep layers see little but their edges: in large ones their values then grow until gates get
# arguments of 30,000, and turn the last bits of any engine into other outputs
EXTENTS_OF_STATISTICS = (256, 256)


def build(name: str) -> nn.Module:
    """The model with random weights, in evaluation with the statistics of one batch of images of 256²."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "zoo"))
    import models as zoo

    entries = {entry.name: entry for entry in zoo.MODELS}
    return zoo.ready(entries.get(name) or zoo.Entry(name, partial(zoo.torchvision, name)), EXTENTS_OF_STATISTICS)


def load(name: str, weights: Path, task: str) -> nn.Module:
    """The model as the others have it, in training where gradients are wanted."""
    model = build(name)
    model.load_state_dict(torch.load(weights))
    if task == "inference":
        return model.eval()
    model.train()
    for module in model.modules():
        if type(module).__name__.startswith(RANDOM):
            module.eval()
        elif isinstance(module, BatchNorm):
            module.register_forward_pre_hook(train_unless_single)
    return model


class ExactHardsigmoid(nn.Module):
    """PyTorch's own gradient has 1/6 in single precision, where values are float64 too: 3e-8 from the true one."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu6(x + 3) / 6


def make_exact(model: nn.Module) -> None:
    """Takes the roundings of single precision out of a model of float64."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Hardsigmoid):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, ExactHardsigmoid())


def train_unless_single(norm: nn.Module, inputs: tuple[Tensor]) -> None:
    """A channel of one value has no variance: such a norm evaluates, as ours does."""
    norm.train(inputs[0].numel() > inputs[0].shape[1])


def export(model: nn.Module, task: str, path: Path, shape: list[int]) -> None:
    options = {}
    if task != "inference":
        options = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said), torch.no_grad():
        warnings.simplefilter("ignore")
        names = {"input_names": ["x"], "output_names": ["y"]}
        torch.onnx.export(model, (torch.randn(shape),), path, opset_version=OPSET, dynamo=False, **names, **options)


def main() -> None:
    name, task, *extents, last = sys.argv[1:]
    folder, shape = Path(last), [int(extent) for extent in extents]
    folder.mkdir(parents=True, exist_ok=True)
    model = build(name)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if (parameter == parameter.flatten()[0]).all():
                # what is all alike would be one constant for all nodes in the file
                parameter += 0.1 * torch.randn(parameter.shape)
    torch.save(model.state_dict(), folder / "weights.pt")
    small = WARM if task == "inference" else PART
    export(model, task, folder / COMPANIONS[task], [*shape[:2], *(min(extent, small) for extent in shape[2:])])
    export(model, task, folder / "partial.onnx", shape)
    (folder / "partial.onnx").rename(folder / "network.onnx")


if __name__ == "__main__":
    main()
