"""Modules of PyTorch whose forward and backward passes run tiled, within a memory budget.

model = tiled.torch.Module(UNet(), torch.zeros(1, 3, 256, 256), memory="4 GiB")
optimizer = torch.optim.AdamW(model.parameters())
for image, target in scenes:                      # of any size, on the CPU
    loss = torch.nn.functional.cross_entropy(model(image), target)
    loss.backward()
    optimizer.step()
"""

import tempfile
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tiled import _tiled
from tiled._network import Network
from tiled._options import Options, folder_of, memory_bytes, threads_of
from tiled.errors import Error, NetworkError

#: What a batch norm calls its running mean.
_MEAN = ".running_mean"

#: The plans that a module keeps.
_KEPT = 16

_ELEMENTS = {torch.float32: "f32", torch.float64: "f64"}


class Module(nn.Module):
    """A module that computes what another does, whose parameters and buffers it has, without holding what lies between its layers.

    It is for modules that `tiled.Network` reads from ONNX, with tensors on the CPU in `float32` or `float64`. Outputs and gradients are those of
    the module but for the order of sums; batch norms in training have the statistics of the whole batch, and move their running ones.
    """

    def __init__(
        self,
        module: nn.Module,
        example: Tensor | Sequence[Tensor],
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        temporary_folder: str | PathLike[str] | None = None,
        device: str = "cpu",
    ) -> None:
        """
        module: what is run; it stays in `self.module`, and changes of its parameters are seen.
        example: inputs with which it is exported and tried, small ones of any size that it takes.
        memory: the most bytes that a step may hold, as a number or as `"2 GiB"`; what can be had where it is not given. Inputs, outputs, their
            gradients and the module's own parameters are PyTorch's and not counted.
        threads, temporary_folder, device: as of `tiled.Network.plan`.

        Raises `tiled.NetworkError` where the module has what no network has, or parameters that its export does not show.
        """
        super().__init__()
        self.module = module
        self._examples = (example,) if isinstance(example, Tensor) else tuple(example)
        self._ranks = _ranks(module, self._examples)
        with _distinct(module):
            self._network = _exported(module, self._examples)
            self._names = _matched(self._network, module)
        self._options = {
            "memory": memory_bytes(memory),
            "threads": threads_of(threads),
            "folder": folder_of(temporary_folder),
            "device": device,
        }
        self._refusals: dict[tuple[bool, ...], str | None] = {}
        self._plans: dict[Any, _Prepared] = {}

    def forward(self, *inputs: Tensor) -> Any:
        """The output of the module; of several outputs a tuple."""
        self._check(inputs)
        parameters = [tensor for tensor in self._tensors().values() if tensor.requires_grad]
        outputs = _Run.apply(self, len(inputs), *inputs, *parameters)
        return outputs[0] if len(outputs) == 1 else outputs

    def peak_bytes(self, *inputs: Tensor) -> int:
        """The most bytes that a step holds for inputs of these shapes, with the gradients that are wanted now."""
        self._check(inputs)
        named = [*zip(self._network.inputs, inputs, strict=True), *self._tensors().items()]
        wanted = [name for name, tensor in named if tensor.requires_grad and torch.is_grad_enabled()]
        return self._plan(inputs, wanted).plan.peak_bytes()

    def extra_repr(self) -> str:
        return f"tiled, memory={self._options['memory']}"

    def __getstate__(self) -> dict[str, Any]:
        raise Error("a tiled module cannot be copied or stored: store the state_dict() of its module, and make another")

    def _tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers of the module as they are now, by the names of the network."""
        own = dict(self.module.named_parameters(remove_duplicate=False)) | dict(
            self.module.named_buffers(remove_duplicate=False)
        )
        return {name: own[of] for name, of in self._names.items()}

    def _norms(self) -> dict[str, _BatchNorm]:
        """The batch norms, by the names of their nodes."""
        of = {f"{name}{_MEAN}": norm for name, norm in self.module.named_modules() if isinstance(norm, _BatchNorm)}
        return {name.removesuffix(_MEAN): of[own] for name, own in self._names.items() if own in of}

    def _check(self, inputs: Sequence[Tensor]) -> None:
        names = list(self._network.inputs)
        if len(names) != len(inputs):
            raise Error(
                f"{len(inputs)} inputs are given, the module has {len(names)}: {', '.join(f'`{name}`' for name in names)}"
            )
        tensors = [*inputs, *self._tensors().values()]
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) != 1 or not dtypes <= _ELEMENTS.keys():
            raise Error(
                f"inputs and parameters are {', '.join(sorted(map(str, dtypes)))}, wants all float32 or all float64"
            )
        for tensor in tensors:
            if tensor.device.type != "cpu":
                raise Error(
                    f"tensors lie on {tensor.device}: wants them on the CPU, `device` says where they are computed with"
                )
        modes = tuple(part.training for part in self.module.modules())
        if modes not in self._refusals:
            self._refusals[modes] = self._refusal() if any(modes) else None
        refusal = self._refusals[modes]
        if refusal is not None:
            raise Error(refusal)

    def _refusal(self) -> str | None:
        """What the module does in its present modes that its export in evaluation does not show."""
        known = [id(norm) for norm in self._norms().values()]
        for name, norm in self.module.named_modules():
            if norm.training and isinstance(norm, _BatchNorm):
                if id(norm) not in known:
                    return f"batch norm `{name}` is in training: its export does not show it as one"
                if norm.momentum is None:
                    return f"batch norm `{name}` is in training without a momentum: running statistics are moved by one"
        draws, changed = _tried(self.module, self._examples)
        if draws:
            return (
                "the module draws random numbers, as dropout in training does, which its export leaves out: "
                "put those parts in evaluation"
            )
        moved = ("running_mean", "running_var", "num_batches_tracked")
        norms = {name for name, norm in self.module.named_modules() if isinstance(norm, _BatchNorm)}
        others = [name for name in changed if name.rpartition(".")[0] not in norms or not name.endswith(moved)]
        return f"the module changes buffers, which its export does not show: {', '.join(others)}" if others else None

    def _plan(self, inputs: Sequence[Tensor], wanted: list[str]) -> "_Prepared":
        """The plan for inputs of these shapes and gradients of these names. The last ones are kept, the memory of one."""
        trains = {name for name, norm in self._norms().items() if norm.training}
        all_norms = [name.removesuffix(_MEAN) for name in self._network.parameters if name.endswith(_MEAN)]
        evaluated = [name for name in all_norms if name not in trains] if trains else []
        shapes = tuple(tuple(input.shape) for input in inputs)
        key = (shapes, inputs[0].dtype, tuple(evaluated), bool(trains), tuple(wanted))
        found = self._plans.pop(key, None)
        for other in self._plans.values():
            other.release()
        if found is None:
            options = Options(dtype=_ELEMENTS[inputs[0].dtype], **self._options)
            plan, remarks = self._network._network.training(list(shapes), options, bool(trains), wanted, evaluated)
            for remark in remarks:
                warnings.warn(remark.removeprefix("warning: "), stacklevel=4)
            found = _Prepared(plan)
        self._plans[key] = found
        while len(self._plans) > _KEPT:
            self._plans.pop(next(iter(self._plans)))
        return found


class _Prepared:
    """A plan, and which values of parameters it has."""

    def __init__(self, plan: _tiled.Training) -> None:
        self.plan = plan
        #: The runs whose gradients may still be asked for.
        self.halves: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: dict[str, tuple[int, int]] = {}

    def changed(self, tensors: dict[str, Tensor]) -> list[tuple[int, Any]]:
        """The parameters whose values are not those of the last call, in rows."""
        changed = []
        for name, position in self.plan.positions():
            if name in tensors and self._seen.get(name) != _state(tensors[name]):
                changed.append((position, _row(tensors[name])))
                self._seen[name] = _state(tensors[name])
        return changed

    def release(self) -> None:
        """Gives the memory of runs back, where no gradient is waited for: those have it until they are gone."""
        if not self.halves:
            self.plan.release()
            self.forget()

    def forget(self) -> None:
        """All parameters are given anew the next time."""
        self._seen.clear()

    def moved(self, norms: dict[str, _BatchNorm], tensors: dict[str, Tensor]) -> None:
        """Running statistics of these batch norms as the run has left them."""
        names = {f"{name}.{kind}" for name in norms for kind in ("running_mean", "running_var")}
        found = [(position, name, tensors[name]) for name, position in self.plan.statistics() if name in names]
        rows = [torch.empty(1, 1, 1, tensor.numel(), dtype=tensor.dtype) for _, _, tensor in found]
        self.plan.parameters([(position, row.numpy()) for (position, _, _), row in zip(found, rows, strict=True)])
        with torch.no_grad():
            for (_, name, tensor), row in zip(found, rows, strict=True):
                tensor.copy_(row.reshape(tensor.shape))
                self._seen[name] = _state(tensor)
            for norm in norms.values():
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.add_(1)


class _Run(torch.autograd.Function):
    """Both passes: inputs come first, then the parameters that want gradients."""

    @staticmethod
    def forward(ctx: Any, run: Module, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = [tensor.contiguous() for tensor in tensors[:count]]
        ctx.count = count
        wants = ctx.needs_input_grad[2:]
        values = run._tensors()
        names = list(run._network.inputs) + [name for name, tensor in values.items() if tensor.requires_grad]
        wanted = [name for name, wants_it in zip(names, wants, strict=True) if wants_it]
        prepared = run._plan(inputs, wanted)
        outputs = [torch.empty(tuple(shape), dtype=inputs[0].dtype) for shape in prepared.plan.output_shapes()]
        try:
            half = prepared.plan.forward(prepared.changed(values), _arrays(inputs), _arrays(outputs))
        except BaseException:
            prepared.forget()
            raise
        prepared.moved({name: norm for name, norm in run._norms().items() if norm.training}, values)
        if half is not None:
            ctx.save_for_backward(*inputs)
            prepared.halves.add(half)
            ctx.half, ctx.prepared, ctx.names = half, prepared, names
            ctx.like = {
                name: torch.empty_like(tensor, device="meta") for name, tensor in values.items() if name in wanted
            }
        # a module that has one pixel left gives it without height and width
        return tuple(
            output.flatten(1) if rank == 2 else output for output, rank in zip(outputs, run._ranks, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        inputs, prepared = ctx.saved_tensors, ctx.prepared
        plan = prepared.plan
        shapes = plan.output_shapes()
        given = [gradient.contiguous().reshape(shape) for gradient, shape in zip(grad_outputs, shapes, strict=True)]
        places = plan.input_gradients()
        of_inputs = [torch.empty_like(inputs[place]) for place in places]
        of_parameters = {
            name: (position, torch.empty(ctx.like[name].shape, dtype=ctx.like[name].dtype))
            for name, position in plan.gradients()
        }
        rows = [(position, _row(gradient)) for position, gradient in of_parameters.values()]
        plan.backward(ctx.half, _arrays(inputs), _arrays(given), _arrays(of_inputs), rows)
        gradients: list[Tensor | None] = [None] * len(ctx.names)
        for place, gradient in zip(places, of_inputs, strict=True):
            gradients[place] = gradient
        for place, name in enumerate(ctx.names[ctx.count :], ctx.count):
            if name in of_parameters:
                gradients[place] = of_parameters[name][1]
        return None, None, *gradients


def _arrays(tensors: Sequence[Tensor]) -> list[Any]:
    """Their memory as N×C×H×W."""
    return [tensor.detach().numpy() for tensor in tensors]


def _row(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().reshape(1, 1, 1, -1).numpy()


def _state(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor._version


@contextmanager
def _distinct(module: nn.Module) -> Iterator[None]:
    """The module with parameters and buffers of which no two are alike, by which an export shows where each has gone."""
    kept = [
        (tensor, tensor.detach().clone())
        for tensor in (*module.parameters(), *module.buffers())
        if tensor.is_floating_point()
    ]
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor, _ in kept:
            tensor.copy_(torch.rand(tensor.shape, generator=chance, dtype=tensor.dtype) + 0.5)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, values in kept:
                tensor.copy_(values)


def _exported(module: nn.Module, examples: tuple[Tensor, ...]) -> Network:
    """The network of a module whose batch norms stay, for images of any size."""
    names = [f"input{place}" for place in range(len(examples))]
    open_axes = {name: {0: "n", 2: f"h{place}", 3: f"w{place}"} for place, name in enumerate(names)}
    with tempfile.TemporaryDirectory() as folder, _evaluated(module), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "module.onnx"
        torch.onnx.export(
            module,
            examples,
            path,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            opset_version=17,
            input_names=names,
            dynamic_axes=open_axes,
        )
        return Network(path)


@contextmanager
def _evaluated(module: nn.Module) -> Iterator[None]:
    """The module with every part of it in evaluation."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _ranks(module: nn.Module, examples: tuple[Tensor, ...]) -> list[int]:
    """How many axes each output has."""
    with _evaluated(module), torch.no_grad():
        made = module(*examples)
    outputs = made.values() if isinstance(made, dict) else made if isinstance(made, list | tuple) else [made]
    return [output.dim() for output in outputs]


def _tried(module: nn.Module, examples: tuple[Tensor, ...]) -> tuple[bool, list[str]]:
    """Whether the module draws random numbers as it is now, and the buffers that it changes; these are then as before."""
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.random.get_rng_state()
        try:
            module(*examples)
            changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, kept[name])]
        finally:
            for name, buffer in module.named_buffers():
                buffer.copy_(kept[name])
        return not torch.equal(before, torch.random.get_rng_state()), changed


def _matched(network: Network, module: nn.Module) -> dict[str, str]:
    """For each parameter of the network the tensor of the module that it is, by name: that with the same elements in the same order."""
    tensors = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    known = {_elements(tensor): name for name, tensor in tensors.items() if tensor.is_floating_point()}
    values = network.state_dict("float64")
    matched = {name: known.get(array.tobytes()) for name, array in values.items()}
    found = {name: own for name, own in matched.items() if own is not None}
    lost = [
        name for name, parameter in module.named_parameters() if parameter.requires_grad and name not in found.values()
    ]
    if lost:
        raise NetworkError(
            f"parameters of the module that its export computes with or does not read: {', '.join(lost)}"
        )
    return found


def _elements(tensor: Tensor) -> bytes:
    return tensor.detach().double().contiguous().numpy().tobytes()
