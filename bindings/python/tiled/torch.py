"""Modules of PyTorch whose forward and backward passes run tiled, within a memory budget.

model = tiled.torch.Module(UNet(), torch.zeros(1, 3, 256, 256), memory="4 GiB")
optimizer = torch.optim.AdamW(model.parameters())
for image, target in scenes:                      # of any size, on the CPU
    loss = torch.nn.functional.cross_entropy(model(image), target)
    loss.backward()
    optimizer.step()
"""

import contextlib
import io
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
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

#: How far results may be from the module's own on the example, of the largest value.
_NEAR = {torch.float32: 1e-3, torch.float64: 1e-6}


class Module(nn.Module):
    """A module that computes what another does, whose parameters and buffers it has, without holding what lies between its layers.

    It is for modules that `tiled.Network` reads from ONNX, with tensors on the CPU in `float32` or `float64`. Outputs and gradients are those of
    the module but for the order of sums; batch norms in training have the statistics of the whole batch, and move their running ones.
    Parameters may change in any way, layers may not: what the module is made of is looked at once.
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
        tolerance: float | None = None,
    ) -> None:
        """
        module: what is run; it stays in `self.module`, and changes of its parameters are seen.
        example: inputs with which it is exported and compared, small ones of a size and of the type that it takes.
        memory: the most bytes that a step may hold, as a number or as `"2 GiB"`; what can be had where it is not given. Inputs, outputs, their
            gradients and the module's own parameters are PyTorch's and not counted; each forward pass whose backward pass is to come holds as
            much again.
        threads, temporary_folder, device: as of `tiled.Network.plan`.
        tolerance: how far results may be from the module's own on the example, of the largest value: 10⁻³ in `float32`, 10⁻⁶ in `float64`.

        Raises `tiled.NetworkError` where the module has what no network has, parameters that its export does not show, or other results.
        """
        super().__init__()
        self.module = module
        self._examples = (example,) if isinstance(example, Tensor) else tuple(example)
        self._tolerance = tolerance
        self._options = {
            "memory": memory_bytes(memory),
            "threads": threads_of(threads),
            "folder": folder_of(temporary_folder),
            "device": device,
        }
        self._refusals: dict[tuple[bool, ...], str | None] = {}
        self._plans: dict[Any, _Prepared] = {}
        with _distinct(module):
            probe = _exported(module, self._examples)
            self._names = _matched(probe, module)
        self._network = _exported(module, self._examples)
        if self._network.parameters != probe.parameters:
            raise NetworkError("the export of the module depends on the values of its parameters")
        #: What the export may have computed with.
        self._constants = {
            name: tensor.detach().clone() for name, tensor in _own(module).items() if name not in self._names.values()
        }
        self._settings = {name: (norm.eps, norm.momentum) for name, norm in self._norms().items()}
        with _evaluated(module), torch.no_grad():
            self._outputs = self._compared(self._examples)
            taller = tuple(torch.cat([example, example], 2) for example in self._examples)
            with contextlib.suppress(_Untaken):
                self._compared(taller, self._outputs)

    def forward(self, *inputs: Tensor) -> Any:
        """The output of the module, of its kind: a tensor, a tuple or a dict of them."""
        self._check(inputs)
        parameters = [tensor for tensor in self._tensors().values() if tensor.requires_grad]
        # PyTorch's functions are not told themselves
        return self._outputs.of(_Run.apply(self, torch.is_grad_enabled(), len(inputs), *inputs, *parameters))

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
        own = _own(self.module)
        lost = [of for of in self._names.values() if of not in own]
        if lost:
            raise Error(f"the module has no {', '.join(lost)} any more: make another tiled module")
        return {name: own[of] for name, of in self._names.items()}

    def _norms(self) -> dict[str, _BatchNorm]:
        """The batch norms, by the names of their nodes."""
        norms = [(name, norm) for name, norm in self.module.named_modules() if isinstance(norm, _BatchNorm)]
        of = {f"{name}{_MEAN}".lstrip("."): norm for name, norm in norms}
        return {name.removesuffix(_MEAN): of[own] for name, own in self._names.items() if own in of}

    def _check(self, inputs: Sequence[Tensor]) -> None:
        names = list(self._network.inputs)
        if len(names) != len(inputs):
            shown = ", ".join(f"`{name}`" for name in names)
            raise Error(f"{len(inputs)} inputs are given, the module has {len(names)}: {shown}")
        for name, tensor in zip(names, inputs, strict=True):
            if tensor.dim() != 4:
                raise Error(f"{name}: wants N×C×H×W, has the shape {tuple(tensor.shape)}")
        tensors = [*inputs, *self._tensors().values()]
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) != 1 or not dtypes <= _ELEMENTS.keys():
            shown = ", ".join(sorted(map(str, dtypes)))
            raise Error(f"inputs and parameters are {shown}, wants all float32 or all float64")
        for tensor in tensors:
            if tensor.device.type != "cpu":
                raise Error(
                    f"tensors lie on {tensor.device}: wants them on the CPU, `device` says where they are computed with"
                )
        own = _own(self.module)
        for name, constant in self._constants.items():
            now = own.get(name)
            if now is None or not torch.equal(now.to(constant.dtype), constant):
                raise Error(f"{name} has changed, which the export of the module has computed with: make another")
        settings = {name: (norm.eps, norm.momentum) for name, norm in self._norms().items()}
        if settings != self._settings:
            raise Error("eps or momentum of a batch norm has changed since the export of the module: make another")
        modes = tuple(part.training for part in self.module.modules())
        if modes not in self._refusals:
            self._refusals[modes] = self._refusal() if any(modes) else None
        refusal = self._refusals[modes]
        if refusal is not None:
            raise Error(refusal)

    def _refusal(self) -> str | None:
        """What the module does in its present modes that its export in evaluation does not show."""
        known = [id(norm) for norm in self._norms().values()]
        norms = [(name, norm) for name, norm in self.module.named_modules() if isinstance(norm, _BatchNorm)]
        for name, norm in norms:
            if norm.training and id(norm) not in known:
                return f"batch norm `{name}` is in training: its export does not show it as one"
            if norm.training and norm.momentum is None:
                return f"batch norm `{name}` is in training without a momentum: running statistics are moved by one"
        try:
            tried = _tried(self.module, self._cast(self._examples))
        except ValueError:
            # one value of a channel has no statistics
            twice = tuple(torch.cat([example, example]) for example in self._examples)
            try:
                tried = _tried(self.module, self._cast(twice))
            except ValueError:
                return None  # PyTorch trains it no more than this
        if tried.draws:
            return (
                "the module draws random numbers, as dropout in training does, which its export leaves out: "
                "put those parts in evaluation"
            )
        moved = {f"{name}.{kind}".lstrip(".") for name, _ in norms for kind in _MOVED}
        others = [name for name in tried.changed if name not in moved]
        if others:
            return f"the module changes buffers, which its export does not show: {', '.join(others)}"
        try:
            with torch.no_grad():
                self._compared(tried.inputs, self._outputs, tried.made)
        except NetworkError as error:
            return f"in training: {error}"
        return None

    def _cast(self, examples: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Examples of the type that the parameters have now."""
        dtype = next((tensor.dtype for tensor in self._tensors().values()), examples[0].dtype)
        return tuple(example.to(dtype) for example in examples)

    def _compared(self, inputs: tuple[Tensor, ...], kinds: "_Outputs | None" = None, made: Any = None) -> "_Outputs":
        """How the outputs of the module are made of the network's, where both have the same results."""
        if made is None:
            try:
                made = self.module(*inputs)
            except Exception as error:
                raise _Untaken from error
        prepared = self._plan(inputs, [])
        got = [torch.empty(tuple(shape), dtype=inputs[0].dtype) for shape in prepared.plan.output_shapes()]
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        prepared.plan.forward(prepared.rows(self._tensors()), _arrays(inputs), _arrays(got))
        near = self._tolerance if self._tolerance is not None else _NEAR.get(inputs[0].dtype, 1e-3)
        return _Outputs.found(self._network.outputs, got, made, near, kinds)

    def _plan(self, inputs: Sequence[Tensor], wanted: list[str]) -> "_Prepared":
        """The plan for inputs of these shapes and gradients of these names. The last ones are kept, the memory of one."""
        trains = {name for name, norm in self._norms().items() if norm.training}
        all_norms = [name.removesuffix(_MEAN) for name in self._network.parameters if name.endswith(_MEAN)]
        evaluated = [name for name in all_norms if name not in trains] if trains else []
        shapes = tuple(tuple(input.shape) for input in inputs)
        dtype = inputs[0].dtype
        if dtype not in _ELEMENTS:
            raise NetworkError(f"the example is {dtype}, wants float32 or float64")
        key = (shapes, dtype, tuple(evaluated), bool(trains), tuple(wanted))
        found = self._plans.pop(key, None)
        for other in list(self._plans.values()):
            other.release()
        if found is None:
            options = Options(dtype=_ELEMENTS[dtype], **self._options)
            plan, remarks = self._network._network.training(list(shapes), options, bool(trains), wanted, evaluated)
            for remark in remarks:
                # axes of outputs are told by the example
                if remark.startswith("warning: "):
                    warnings.warn(remark.removeprefix("warning: "), stacklevel=4)
            found = _Prepared(plan)
        self._plans[key] = found
        while len(self._plans) > _KEPT:
            self._plans.pop(next(iter(self._plans)))
        return found


class _Untaken(Exception):  # noqa: N818
    """The module takes no such inputs."""


class _Prepared:
    """A plan, and the runs that wait."""

    def __init__(self, plan: _tiled.Training) -> None:
        self.plan = plan
        #: The runs whose gradients may still be asked for.
        self.halves: weakref.WeakSet[Any] = weakref.WeakSet()

    def rows(self, tensors: dict[str, Tensor]) -> list[tuple[int, Any]]:
        """All parameters: the plan looks which have changed."""
        return [(position, _row(tensors[name])) for name, position in self.plan.positions() if name in tensors]

    def release(self) -> None:
        """Gives the memory of runs back, where no gradient is waited for: those have it until they are gone."""
        if not self.halves:
            self.plan.release()

    def moved(self, norms: dict[str, _BatchNorm], tensors: dict[str, Tensor]) -> None:
        """Running statistics of these batch norms as the run has left them."""
        names = {f"{name}.{kind}" for name in norms for kind in ("running_mean", "running_var")}
        found = [(position, tensors[name]) for name, position in self.plan.statistics() if name in names]
        rows = [torch.empty(1, 1, 1, tensor.numel(), dtype=tensor.dtype) for _, tensor in found]
        self.plan.parameters([(position, row.numpy()) for (position, _), row in zip(found, rows, strict=True)])
        with torch.no_grad():
            for (_, tensor), row in zip(found, rows, strict=True):
                tensor.copy_(row.reshape(tensor.shape))
            for norm in norms.values():
                if norm.num_batches_tracked is not None:
                    norm.num_batches_tracked.add_(1)


#: What a batch norm in training changes.
_MOVED = ("running_mean", "running_var", "num_batches_tracked")

#: How an output of the network, N×C×H×W, may be one of the module, and back.
_KINDS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "N×C×H×W": (lambda y: y, lambda y: y),
    "N×C": (lambda y: y.flatten(1), lambda y: y[:, :, None, None]),
    "N×H×W": (lambda y: y.flatten(0, 1), lambda y: y[:, None]),
    "N×H×W×C": (lambda y: y.permute(0, 2, 3, 1), lambda y: y.permute(0, 3, 1, 2)),
}


@dataclass
class _Outputs:
    """How the outputs of a module are made of those of its network."""

    #: What the module gives: the keys of a dict, `None` of a tensor alone, else of a tuple.
    keys: Sequence[Any] | None
    kinds: list[str]

    @classmethod
    def found(cls, names: list[str], got: list[Tensor], made: Any, near: float, known: "_Outputs | None") -> "_Outputs":
        """By the results of both. Raises `NetworkError` where they are others."""
        if isinstance(made, dict):
            keys, wanted = list(made), list(made.values())
        elif isinstance(made, Tensor):
            keys, wanted = None, [made]
        else:
            keys, wanted = (list(range(len(made))), list(made)) if isinstance(made, list | tuple) else ([], [])
        if len(wanted) != len(got) or not all(isinstance(output, Tensor) for output in wanted):
            raise NetworkError(f"the module gives {type(made).__name__}, wants a tensor, or a tuple or dict of tensors")
        kinds = []
        for place, (name, ours, theirs) in enumerate(zip(names, got, wanted, strict=True)):
            far = None
            for kind in [known.kinds[place]] if known else _KINDS:
                turned = _turned(ours, kind)
                if turned is None or turned.shape != theirs.shape:
                    continue
                difference = (turned - theirs).abs().max().item()
                # what is no number is so in both, or they differ
                if torch.equal(turned.isnan(), theirs.isnan()):
                    difference = (turned - theirs).nan_to_num(0.0).abs().max().item()
                bound = near * max(theirs.nan_to_num(0.0).abs().max().item(), 1e-30)
                if difference <= bound:
                    kinds.append(kind)
                    break
                far = f"differs by {difference:.3g} where the module's own is up to {theirs.abs().max().item():.3g}"
            else:
                far = far or f"has the shape {tuple(ours.shape)} in the network, {tuple(theirs.shape)} in the module"
                raise NetworkError(f"output `{name}` {far}: its export does not compute what the module does")
        return cls(keys, kinds)

    def of(self, outputs: tuple[Tensor, ...]) -> Any:
        """The outputs as the module gives them."""
        if self.keys is None:
            return outputs[0]
        if self.keys and not isinstance(self.keys[0], int):
            return dict(zip(self.keys, outputs, strict=True))
        return outputs


def _turned(output: Tensor, kind: str) -> Tensor | None:
    _, channels, height, width = output.shape
    if (kind == "N×C" and (height, width) != (1, 1)) or (kind == "N×H×W" and channels != 1):
        return None
    return _KINDS[kind][0](output)


class _Run(torch.autograd.Function):
    """Both passes: inputs come first, then the parameters that want gradients."""

    @staticmethod
    def forward(ctx: Any, run: Module, with_gradients: bool, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = [tensor.contiguous() for tensor in tensors[:count]]
        ctx.count = count
        wants = [wants_it and with_gradients for wants_it in ctx.needs_input_grad[-len(tensors) :]]
        values = run._tensors()
        names = list(run._network.inputs) + [name for name, tensor in values.items() if tensor.requires_grad]
        wanted = [name for name, wants_it in zip(names, wants, strict=True) if wants_it]
        prepared = run._plan(inputs, wanted)
        outputs = [torch.empty(tuple(shape), dtype=inputs[0].dtype) for shape in prepared.plan.output_shapes()]
        half = prepared.plan.forward(prepared.rows(values), _arrays(inputs), _arrays(outputs))
        prepared.moved({name: norm for name, norm in run._norms().items() if norm.training}, values)
        ctx.kinds = run._outputs.kinds
        if half is not None:
            ctx.save_for_backward(*inputs)
            prepared.halves.add(half)
            ctx.half, ctx.prepared, ctx.names = half, prepared, names
            ctx.like = {
                name: torch.empty_like(tensor, device="meta") for name, tensor in values.items() if name in wanted
            }
        return tuple(_KINDS[kind][0](output) for output, kind in zip(outputs, ctx.kinds, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        inputs, prepared, half = ctx.saved_tensors, ctx.prepared, ctx.half
        if half is None:
            raise Error(
                "the gradients of this run were computed already: `retain_graph` holds nothing of a tiled module"
            )
        plan = prepared.plan
        given = [_KINDS[kind][1](gradient).contiguous() for gradient, kind in zip(grad_outputs, ctx.kinds, strict=True)]
        places = plan.input_gradients()
        of_inputs = [torch.empty_like(inputs[place]) for place in places]
        of_parameters = {
            name: (position, torch.empty(ctx.like[name].shape, dtype=ctx.like[name].dtype))
            for name, position in plan.gradients()
        }
        rows = [(position, _row(gradient)) for position, gradient in of_parameters.values()]
        ctx.half = None
        try:
            plan.backward(half, _arrays(inputs), _arrays(given), _arrays(of_inputs), rows)
        finally:
            prepared.halves.discard(half)
        gradients: list[Tensor | None] = [None] * len(ctx.names)
        for place, gradient in zip(places, of_inputs, strict=True):
            gradients[place] = gradient
        for place, name in enumerate(ctx.names[ctx.count :], ctx.count):
            if name in of_parameters:
                gradients[place] = of_parameters[name][1]
        return None, None, None, *gradients


def _arrays(tensors: Sequence[Tensor]) -> list[Any]:
    """Their memory, N×C×H×W."""
    return [tensor.detach().numpy() for tensor in tensors]


def _row(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().reshape(1, 1, 1, -1).numpy()


def _own(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of floating-point numbers, by all of their names."""
    buffers = module.named_buffers(remove_duplicate=False)
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(buffers)
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


@contextlib.contextmanager
def _distinct(module: nn.Module) -> Iterator[None]:
    """The module with parameters and buffers of which no two are alike, by which an export shows where each has gone."""
    tensors = (*module.parameters(), *module.buffers())
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors if tensor.is_floating_point()]
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


class _Exported(nn.Module):
    """A module within one that is in training, of which exporters leave parameters of equal values apart."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(*inputs)


def _exported(module: nn.Module, examples: tuple[Tensor, ...]) -> Network:
    """The network of a module whose batch norms stay, for images of any size."""
    names = [f"input{place}" for place in range(len(examples))]
    open_axes = {name: {0: "n", 2: f"h{place}", 3: f"w{place}"} for place, name in enumerate(names)}
    with (
        tempfile.TemporaryDirectory() as folder,
        _evaluated(module),
        torch.no_grad(),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        path = Path(folder) / "module.onnx"
        try:
            torch.onnx.export(
                _Exported(module),
                examples,
                path,
                dynamo=False,
                training=torch.onnx.TrainingMode.PRESERVE,
                do_constant_folding=False,
                opset_version=17,
                input_names=names,
                dynamic_axes=open_axes,
            )
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise NetworkError(f"PyTorch does not export the module: {said[0]}") from error
        return Network(path)


@contextlib.contextmanager
def _evaluated(module: nn.Module) -> Iterator[None]:
    """The module with every part of it in evaluation."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@dataclass
class _Tried:
    """What a module did with inputs."""

    inputs: tuple[Tensor, ...]
    made: Any
    #: Whether it drew random numbers.
    draws: bool
    #: The buffers that it changed.
    changed: list[str]


def _tried(module: nn.Module, inputs: tuple[Tensor, ...]) -> _Tried:
    """Runs the module as it is now. Its buffers are then as before."""
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast("cpu", enabled=False):
        before = torch.random.get_rng_state()
        try:
            made = module(*inputs)
            changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, kept[name])]
        finally:
            for name, buffer in module.named_buffers():
                buffer.copy_(kept[name])
        return _Tried(inputs, made, not torch.equal(before, torch.random.get_rng_state()), changed)


def _matched(network: Network, module: nn.Module) -> dict[str, str]:
    """For each parameter of the network the tensor of the module that it is, by name: that with the same elements in the same order."""
    tensors = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    known = {_elements(tensor): name for name, tensor in tensors.items() if tensor.is_floating_point()}
    matched = {name: known.get(array.tobytes()) for name, array in network.state_dict("float64").items()}
    found = {name: own for name, own in matched.items() if own is not None}
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    lost = [name for name in trained if name not in found.values()]
    if lost:
        raise NetworkError(
            f"parameters that the export of the module computes with or does not read, as it does scalars: {', '.join(lost)}"
        )
    return found


def _elements(tensor: Tensor) -> bytes:
    return tensor.detach().double().contiguous().numpy().tobytes()
