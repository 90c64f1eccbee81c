"""How a network is planned and run, as the extension module reads it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral
from os import PathLike
from pathlib import Path

import numpy
from numpy.typing import DTypeLike

from tiled import _tiled

_ELEMENTS = {
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "uint64": "u64",
    "int64": "i64",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Attributes of the names and types that `src/options.rs` reads."""

    memory: int | None = None
    threads: int | None = None
    dtype: str = "f32"
    device: str = "cpu"
    winograd: bool = False
    folder: Path | None = None
    numbers: str = "scaled"
    scale: float = 1.0
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    output_element: str | None = None
    output_numbers: str = "scaled"
    argmax: bool = False
    threshold: float | None = None
    is_once: bool = False


def element(dtype: DTypeLike) -> str:
    """The name that the library has for a type of elements; of others that of NumPy, which it refuses."""
    name = numpy.dtype(dtype).name
    return _ELEMENTS.get(name, name)


def dtype_of(element: str) -> str:
    """The name that NumPy has for a type of elements of the library."""
    return next((name for name, own in _ELEMENTS.items() if own == element), element)


def memory_bytes(memory: int | str | None) -> int | None:
    """A budget in bytes, of a number or of a text such as `"2 GiB"`."""
    if memory is None:
        return None
    if isinstance(memory, str):
        return _tiled.parse_bytes(memory)
    if not isinstance(memory, Integral) or isinstance(memory, bool):
        raise TypeError(f"memory {memory!r}: wants a whole number of bytes, or a text such as '1 GiB'")
    if not 1 <= memory < 1 << 63:
        raise ValueError(f"memory of {memory} bytes: wants a size above 0 and below 2**63, such as 1 << 30 or '1 GiB'")
    return int(memory)


def threads_of(threads: int | None) -> int | None:
    if threads is None:
        return None
    if not isinstance(threads, Integral) or isinstance(threads, bool):
        raise TypeError(f"threads {threads!r}: wants a whole number")
    if not 1 <= threads <= 1024:
        raise ValueError(f"threads {threads}: wants 1 to 1024")
    return int(threads)


def factors(given: float | Iterable[float] | None) -> list[float]:
    """One number, or one for each channel."""
    return [] if given is None else numpy.atleast_1d(numpy.asarray(given, "float64")).ravel().tolist()


def folder_of(folder: str | PathLike[str] | None) -> Path | None:
    return None if folder is None else Path(folder)
