"""Networks and plans."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike, fspath
from typing import Any

import numpy
from numpy.typing import DTypeLike

from tiled import _operands, _tiled
from tiled._operands import Array, Operand
from tiled._options import Options, dtype_of, element, factors, folder_of, memory_bytes, threads_of
from tiled._progress import Progress, heard_by
from tiled.errors import BudgetError, Error

#: One array or path, or one for each output.
Outputs = Operand | Sequence[Operand] | None

#: The extents of an input: N×C×H×W, C×H×W or H×W.
Shape = tuple[int, ...]


class Network:
    """A network with its weights, from a file of ONNX or of the program's own format, or built in.

    >>> import numpy, tiled
    >>> network = tiled.Network("light", weights="random:1")
    >>> network.run(numpy.zeros((3, 64, 96), numpy.float32), memory="1 MiB").shape
    (32, 16, 24)
    """

    def __init__(
        self, net: str | PathLike[str], weights: str | PathLike[str] | Mapping[str, Any] | None = None
    ) -> None:
        """
        net: a file `.onnx` or `.json`, or the name of a built-in network.
        weights: a file `.safetensors`, `"random:SEED"`, or arrays by name as `state_dict()` has them. A file of ONNX has its own.

        Raises `NetworkError` where there is no such network, or the model has what no network has: then all of that is in its text.
        """
        if isinstance(weights, Mapping):
            given: Any = [_entry(name, weight) for name, weight in weights.items()]
        else:
            given = None if weights is None else fspath(weights)
        self._network = _tiled.Network(fspath(net), given)
        self._name = fspath(net)

    @property
    def inputs(self) -> dict[str, int]:
        """The names of the inputs, and how many channels each has."""
        return dict(self._network.inputs())

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return self._network.outputs()

    @property
    def parameters(self) -> dict[str, Shape]:
        """The names of the parameters, and their shapes."""
        return {name: tuple(shape) for name, shape in self._network.parameters()}

    def state_dict(self, dtype: DTypeLike = "float32") -> dict[str, Array]:
        """The parameters, as `float32` or `float64`."""
        arrays = {name: numpy.empty(shape, dtype) for name, shape in self.parameters.items()}
        self._network.weights(element(dtype), [array.reshape(1, 1, 1, -1) for array in arrays.values()])
        return arrays

    def merged(self) -> "Network":
        """
        The network for inference with one convolution for those of one value that are added, as RepVGG and MobileOne train them.

        Where there are such it is faster, and its results have other roundings. Norms of such branches become weights, which are held in memory.
        """
        merged = Network.__new__(Network)
        merged._network = self._network.merged()
        merged._name = self._name
        return merged

    def to_json(self) -> str:
        """The network in the program's own format, without weights."""
        return self._network.to_json()

    def output_shapes(self, *inputs: Operand | Shape, axes: str | None = None) -> list[Shape]:
        """The shapes of the outputs, N×C×H×W, for these inputs or their shapes."""
        given = [_planned(input, axes, name)[0] for input, name in self._named(inputs)]
        return [tuple(shape) for shape in self._network.shapes(given, Options())[1]]

    def plan(
        self,
        *inputs: Operand | Shape,
        memory: int | str | None = None,
        threads: int | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        winograd: bool = False,
        temporary_folder: str | PathLike[str] | None = None,
        axes: str | None = None,
        argmax: bool = False,
        threshold: float | None = None,
        progress: Progress | bool | None = None,
    ) -> "Plan":
        """A plan for these inputs or their shapes, to be looked at and run any number of times.

        memory: the most bytes that a run may hold, as a number or as `"2 GiB"`; what can be had now where it is not given. Arrays in
            memory that are read and written are the caller's and not counted.
        threads: all cores where it is not given.
        dtype: of the computation, `float32` or `float64`.
        device: `"cpu"`, `"cuda"` or `"cuda:N"`.
        winograd: 3×3 convolutions by Winograd's method: faster, with other roundings.
        temporary_folder: where values may lie in files that memory does not hold.
        axes: of the inputs, `"HWC"` for instance; by the number of axes they are H×W, C×H×W or N×C×H×W.
        argmax, threshold: what `run` will be asked for, which takes memory of its own.
        progress: as of `run`; how much work planning is nobody knows, so a function hears 0 of 0.

        Raises `BudgetError` where no plan keeps to the memory, with the smallest that one does.
        """
        options = _planning(memory, threads, dtype, device, winograd, temporary_folder, argmax, threshold)
        planned = [_planned(input, axes, name)[0] for input, name in self._named(inputs)]
        plan, planned = _plan(self._network, planned, [], options, progress)
        return Plan(self, plan, [_operands.chunks_of(operand) for operand in planned], options)

    def run(
        self,
        *inputs: Operand,
        out: Outputs = None,
        memory: int | str | None = None,
        threads: int | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        winograd: bool = False,
        temporary_folder: str | PathLike[str] | None = None,
        axes: str | None = None,
        numbers: str = "scaled",
        scale: float = 1.0,
        mean: float | Iterable[float] | None = None,
        std: float | Iterable[float] | None = None,
        output_dtype: DTypeLike | None = None,
        output_numbers: str = "scaled",
        argmax: bool = False,
        threshold: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Any:
        """The outputs of the network: an array, or of several outputs a tuple of them.

        inputs: paths of `.npy`, `.png` or `.jpg`; arrays, also `numpy.memmap` and tensors of PyTorch on the CPU; or objects with `shape`,
            `dtype` and slices (zarr, h5py), which are read a few rows at a time, chunk by chunk where they have chunks.
        out: where the outputs go instead of into new arrays, of the same kinds: a path, an array, an object that takes slices. It is returned.
        numbers: `"scaled"` takes 8 and 16 bits without a sign as 0 to 1, as pictures are, `"as-is"` every integer as the number that it is.
        scale, mean, std: `(scale·v − mean)/std` is read; one number, or one for each channel.
        output_dtype: of new arrays and files; integers are rounded, and hold what `output_numbers` says as `numbers` does.
        argmax: the number of the channel with the largest value of each pixel, 8 bits (16 where there are more than 256 channels).
        threshold: 1 where a value is above it, else 0; integers hold these as `output_numbers` says, so `"as-is"` keeps them.
        progress: a function that hears the steps that are done and all of them, `True` for a bar on standard error, `False` for nothing;
            a bar on a terminal where it is not given.

        The others are those of `plan`. Nothing is kept after the run; to run many images of one size, make a `plan` once.
        While it runs, arrays that it reads and writes must be left alone. Ctrl-C ends it, and leaves no file under its name.
        """
        planned = _planning(memory, threads, dtype, device, winograd, temporary_folder, argmax, threshold)
        options = _running(planned, numbers, scale, mean, std, output_dtype, output_numbers, is_once=True)
        read = [_operands.source(input, axes, f"input {name}") for input, name in self._named(inputs)]
        operands = [operand for operand, _ in read]
        shapes = self._network.shapes(operands, options)[1]
        outputs, written = _outputs(self, shapes, inputs, out, _output_axes(read), options)
        # a function hears of the run alone
        heard = None if callable(progress) else progress
        plan, operands = _plan(self._network, operands, written, options, heard)
        _warn(plan.remarks())
        return _run(self, plan, operands, outputs, written, options, progress)

    __call__ = run

    def __repr__(self) -> str:
        return f"Network({self._name!r}: {self._network.nodes()} nodes, {', '.join(self.inputs)} to {', '.join(self.outputs)})"

    def _named(self, inputs: Sequence[Any]) -> list[tuple[Any, str]]:
        names = list(self.inputs)
        if len(names) != len(inputs):
            raise Error(
                f"{len(inputs)} inputs are given, the network has {len(names)}: {', '.join(f'`{name}`' for name in names)}"
            )
        return list(zip(inputs, names, strict=True))


class Plan:
    """How a network runs over images of one size within a budget. It keeps the memory of its runs from the first one on.

    `str(plan)` tells all of it. One thread runs it at a time.
    """

    def __init__(self, network: Network, plan: _tiled.Plan, chunks: list[Any], options: Options) -> None:
        self._network = network
        self._plan = plan
        self._chunks = chunks
        self._options = options
        _warn(plan.remarks())

    @property
    def peak_bytes(self) -> int:
        """The most bytes that a run holds."""
        return self._plan.peak_bytes()

    @property
    def memory(self) -> dict[str, int]:
        """What holds them, in bytes."""
        return dict(self._plan.memory())

    @property
    def input_shapes(self) -> list[Shape]:
        """The shapes of the inputs, N×C×H×W."""
        return [tuple(shape) for shape in self._plan.input_shapes()]

    @property
    def output_shapes(self) -> list[Shape]:
        """The shapes of the outputs, N×C×H×W."""
        return [tuple(shape) for shape in self._plan.output_shapes()]

    def run(
        self,
        *inputs: Operand,
        out: Outputs = None,
        axes: str | None = None,
        numbers: str = "scaled",
        scale: float = 1.0,
        mean: float | Iterable[float] | None = None,
        std: float | Iterable[float] | None = None,
        output_dtype: DTypeLike | None = None,
        output_numbers: str = "scaled",
        argmax: bool = False,
        threshold: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Any:
        """The outputs of the network, as those of `Network.run`, whose arguments these are."""
        planned = self._options
        if (argmax and not planned.argmax) or (threshold is not None and planned.threshold is None):
            raise Error(
                "the plan was made without argmax or threshold, which take memory of their own: give it to `plan`"
            )
        planned = replace(planned, argmax=argmax, threshold=threshold)
        options = _running(planned, numbers, scale, mean, std, output_dtype, output_numbers)
        read = [_operands.source(input, axes, f"input {name}") for input, name in self._network._named(inputs)]
        operands = [
            _operands.in_chunks(operand, chunks) for (operand, _), chunks in zip(read, self._chunks, strict=True)
        ]
        shapes = self._plan.output_shapes()
        outputs, written = _outputs(self._network, shapes, inputs, out, _output_axes(read), options)
        return _run(self._network, self._plan, operands, outputs, written, options, progress)

    __call__ = run

    def __str__(self) -> str:
        return self._plan.text()

    def __repr__(self) -> str:
        return f"Plan({self.input_shapes} to {self.output_shapes}, {self.peak_bytes} bytes)"


def _entry(name: str, weight: Any) -> tuple[str, tuple[int, ...], Array]:
    # NumPy has no bfloat16
    weight = weight.float() if str(getattr(weight, "dtype", "")) == "torch.bfloat16" else weight
    array = _operands.in_memory(weight)
    array = numpy.asarray(weight) if array is None else array
    return name, array.shape, numpy.ascontiguousarray(array).reshape(1, 1, 1, -1)


def _planned(given: Any, axes: str | None, name: str) -> tuple[Any, str]:
    """What a plan is for: the operand, or its shape."""
    if isinstance(given, tuple) and all(isinstance(extent, Integral) for extent in given):
        order = _operands.axes_of(len(given), axes, f"input {name}")
        return tuple(given[order.index(axis)] if axis in order else 1 for axis in "NCHW"), order
    return _operands.source(given, axes, f"input {name}")


def _output_axes(read: list[tuple[Any, str]]) -> str:
    """Results have the axes of the first input, and always channels."""
    order = read[0][1] if read else "NCHW"
    return order if "C" in order else order.replace("H", "CH")


def _outputs(
    network: Network,
    shapes: list[Sequence[int]],
    inputs: Sequence[Operand],
    out: Outputs,
    axes: str,
    options: Options,
) -> tuple[list[Any], list[Any]]:
    """What is given back for each output, and what the extension module writes."""
    if out is None:
        arrays = [_new(shape, axes, options) for shape in shapes]
    elif isinstance(out, list | tuple):
        arrays = list(out)
    else:
        arrays = [out]
    names = network.outputs
    if len(arrays) != len(names):
        raise Error(
            f"out has {len(arrays)} outputs, the network {len(names)}: {', '.join(f'`{name}`' for name in names)}"
        )
    _check_apart(arrays, names, list(zip(inputs, network.inputs, strict=True)))
    return arrays, [
        _operands.sink(array, _axes_of(array, axes), f"output {name}")
        for array, name in zip(arrays, names, strict=True)
    ]


def _check_apart(outputs: list[Any], names: list[str], inputs: list[tuple[Operand, str]]) -> None:
    """Each output has a place of its own. Files take theirs when they are whole: they may have been read."""
    for place, (output, name) in enumerate(zip(outputs, names, strict=True)):
        if any(_operands.is_same(output, other) for at, other in enumerate(outputs) if at != place):
            raise Error(f"output {name}: another output goes to the same place")
        if _operands.is_path(output) or _operands.in_memory(output) is not None:
            continue
        for input, of in inputs:
            if _operands.is_same(output, input):
                raise Error(f"output {name}: is input {of} too, which is read while it is written")


def _axes_of(array: Any, axes: str) -> str | None:
    """The axes of results, without those that an array has not: images first, then channels; `None` of other arrays."""
    rank = len(getattr(array, "shape", ()))
    orders = [axes, axes.replace("N", ""), axes.replace("N", "").replace("C", "")]
    return next((order for order in orders if len(order) == rank), None)


def _new(shape: Sequence[int], axes: str, options: Options) -> Array:
    extents = dict(zip("NCHW", shape, strict=True))
    dtype = dtype_of(_tiled.output_element(extents["C"], options))
    if options.argmax:
        extents["C"] = 1
    return numpy.empty([extents[axis] for axis in axes], dtype)


def _planning(
    memory: int | str | None,
    threads: int | None,
    dtype: DTypeLike,
    device: str,
    winograd: bool,
    temporary_folder: str | PathLike[str] | None,
    argmax: bool,
    threshold: float | None,
) -> Options:
    """What a plan depends on beside its inputs."""
    return Options(
        memory=memory_bytes(memory),
        threads=threads_of(threads),
        dtype=element(dtype),
        device=device,
        winograd=winograd,
        folder=folder_of(temporary_folder),
        argmax=argmax,
        threshold=threshold,
    )


def _running(
    planned: Options,
    numbers: str,
    scale: float,
    mean: float | Iterable[float] | None,
    std: float | Iterable[float] | None,
    output_dtype: DTypeLike | None,
    output_numbers: str,
    is_once: bool = False,
) -> Options:
    """The same with what a run does to what it reads and writes."""
    return replace(
        planned,
        numbers=numbers,
        scale=scale,
        mean=factors(mean),
        std=factors(std),
        output_element=None if output_dtype is None else element(output_dtype),
        output_numbers=output_numbers,
        is_once=is_once,
    )


def _plan(
    network: _tiled.Network,
    operands: list[Any],
    outputs: list[Any],
    options: Options,
    progress: Progress | bool | None,
) -> tuple[_tiled.Plan, list[Any]]:
    """A plan, and the inputs as it reads them: in parts where the budget does not hold whole chunks."""
    hears, close = heard_by(progress, "planning")
    try:
        return network.plan(operands, outputs, options, hears), operands
    except BudgetError:
        if not any(map(_operands.chunks_of, operands)):
            raise
        operands = [_operands.in_chunks(operand, None) for operand in operands]
        return network.plan(operands, outputs, options, hears), operands
    finally:
        close()


def _run(
    network: Network,
    plan: _tiled.Plan,
    operands: list[Any],
    outputs: list[Any],
    written: list[Any],
    options: Options,
    progress: Progress | bool | None,
) -> Any:
    hears, close = heard_by(progress, "run")
    try:
        _, told = plan.run(operands, written, options, hears)
    finally:
        close()
    for name, changes in zip(network.outputs, told, strict=True):
        if changes is not None:
            values, cut, nan, _, least, largest = changes
            if cut or nan:
                _warn(
                    [
                        f"output {name}: of {values} values from {least} to {largest} {cut} were cut to the range of their type, {nan} were NaN"
                    ]
                )
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _warn(remarks: list[str]) -> None:
    for remark in remarks:
        warnings.warn(remark.removeprefix("warning: "), stacklevel=4)
