"""Arrays, files, and objects that are read or written in parts, as the extension module takes them: N×C×H×W."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy
from numpy.typing import NDArray

from tiled._options import element
from tiled.errors import Error

Array: TypeAlias = NDArray[Any]


@runtime_checkable
class SlicedArray(Protocol):
    """An array that lies elsewhere and is read by slices: of zarr, of h5py, or of your own."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, key: tuple[slice, ...], /) -> Any: ...


#: A path, an array in memory (also a `numpy.memmap` and a tensor of PyTorch on the CPU), or one that is read by slices.
Operand: TypeAlias = str | PathLike[str] | Array | SlicedArray | Any

#: Where each axis of an array of so many axes stands.
_AXES = {2: "HW", 3: "CHW", 4: "NCHW"}


@dataclass(frozen=True, slots=True)
class Parts:
    """An object in parts, with the attributes that `src/parts.rs` reads."""

    get: Callable[[int, int, int, int], Array]
    put: Callable[[int, int, int, int, Array], None] | None
    shape: tuple[int, int, int, int]
    element: str
    chunks: tuple[int, int] | None


def axes_of(rank: int, axes: str | None, name: str) -> str:
    """The axes of an array of so many, of which `axes` may say the order."""
    if axes is None:
        if rank not in _AXES:
            raise Error(f"{name}: wants 2 to 4 axes, H×W, C×H×W or N×C×H×W, has {rank}")
        return _AXES[rank]
    if len(axes) != rank or len(set(axes)) != rank or not set("HW") <= set(axes) <= set("NCHW"):
        raise Error(f"{name}: axes {axes!r} are not the {rank} axes of it, such as 'HWC'")
    return axes


def in_order(array: Array, axes: str) -> Array:
    """The same elements as N×C×H×W; nothing is copied."""
    array = array.transpose([axes.index(axis) for axis in "NCHW" if axis in axes])
    missing = [place for place, axis in enumerate("NCHW") if axis not in axes]
    return numpy.expand_dims(array, tuple(missing))


def as_axes(array: Array, axes: str) -> Array:
    """An array N×C×H×W with these axes; those that are dropped have one element."""
    kept = [axis for axis in "NCHW" if axis in axes]
    array = array.squeeze(tuple(place for place, axis in enumerate("NCHW") if axis not in axes))
    return array.transpose([kept.index(axis) for axis in axes])


def chunks_of(operand: Any) -> tuple[int, int] | None:
    """The rows and columns of the chunks in which an operand is read."""
    return operand.chunks if isinstance(operand, Parts) else None


def in_chunks(operand: Any, chunks: tuple[int, int] | None) -> Any:
    """What is read in parts, in these chunks: any rectangle can be asked for."""
    return replace(operand, chunks=chunks) if isinstance(operand, Parts) else operand


def is_path(given: Operand) -> bool:
    return isinstance(given, str | PathLike)


def is_same(one: Operand, other: Operand) -> bool:
    """Whether both are one file, or one array as far as it can be told."""
    if is_path(one) and is_path(other):
        one, other = Path(one), Path(other)
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    if one is other or type(one) is not type(other):
        return one is other
    # their arrays are handles, which are equal where what they are of is one
    return type(one).__module__.partition(".")[0] in ("h5py", "zarr") and bool(one == other)


def in_memory(given: Operand) -> Array | None:
    """The array, where it lies in memory."""
    if isinstance(given, numpy.ndarray):
        return given
    if hasattr(given, "detach") and hasattr(given, "numpy"):
        # a tensor of PyTorch: its memory, where that is the CPU's
        return given.detach().numpy()
    if hasattr(given, "__array_interface__") or isinstance(given, list | tuple | memoryview):
        return numpy.asarray(given)
    return None


def source(given: Operand, axes: str | None, name: str) -> tuple[Any, str]:
    """What the extension module reads, and its axes."""
    if is_path(given):
        if axes is not None:
            raise Error(f"{name}: axes {axes!r} are of arrays, a file is H×W, C×H×W or N×C×H×W")
        return Path(given), "NCHW"
    array = in_memory(given)
    if array is not None:
        order = axes_of(array.ndim, axes, name)
        return in_order(array, order), order
    if not isinstance(given, SlicedArray):
        raise Error(
            f"{name}: wants a path, an array, or an object with shape, dtype and slices, is {type(given).__name__}"
        )
    order = axes_of(len(given.shape), axes, name)

    def get(y0: int, y1: int, x0: int, x1: int) -> Array:
        return in_order(numpy.asarray(given[_slices(order, y0, y1, x0, x1)]), order)

    return Parts(get, None, _extents(given.shape, order), element(given.dtype), _chunks(given, order)), order


def sink(given: Operand, axes: str | None, name: str) -> Any:
    """What the extension module writes."""
    if is_path(given):
        return Path(given)
    # what is made of a list is a copy, which nobody would see
    array = None if isinstance(given, list | tuple) else in_memory(given)
    if array is not None:
        return in_order(array, axes_of(array.ndim, axes, name))
    if not isinstance(given, SlicedArray) or not hasattr(given, "__setitem__"):
        raise Error(
            f"{name}: wants a path, an array, or an object with shape, dtype and slices to write, is {type(given).__name__}"
        )
    order = axes_of(len(given.shape), axes, name)
    shape, dtype = _extents(given.shape, order), numpy.dtype(given.dtype)

    def get(y0: int, y1: int, x0: int, x1: int) -> Array:
        return numpy.empty((shape[0], shape[1], y1 - y0, x1 - x0), dtype)

    def put(y0: int, y1: int, x0: int, x1: int, part: Array) -> None:
        given[_slices(order, y0, y1, x0, x1)] = as_axes(part, order)

    return Parts(get, put, shape, element(dtype), None)


def _slices(axes: str, y0: int, y1: int, x0: int, x1: int) -> tuple[slice, ...]:
    of = {"H": slice(y0, y1), "W": slice(x0, x1)}
    return tuple(of.get(axis, slice(None)) for axis in axes)


def _extents(shape: Sequence[int], axes: str) -> tuple[int, int, int, int]:
    n, c, h, w = (int(shape[axes.index(axis)]) if axis in axes else 1 for axis in "NCHW")
    return n, c, h, w


def _chunks(given: Any, axes: str) -> tuple[int, int] | None:
    """The rows and columns of the chunks of an array of zarr or h5py."""
    chunks = getattr(given, "chunks", None)
    if (
        not isinstance(chunks, tuple)
        or len(chunks) != len(axes)
        or not all(isinstance(extent, int) for extent in chunks)
    ):
        return None
    h, w = (min(chunks[axes.index(axis)], given.shape[axes.index(axis)]) for axis in "HW")
    return (h, w) if h > 0 and w > 0 else None
