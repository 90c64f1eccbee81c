"""Exact tiled execution of convolutional networks on images that do not fit in memory.

Give a network that somebody trained, an image and a memory budget in bytes; get what the network computes of the whole image.

    import tiled

    network = tiled.Network("unet.onnx")
    network.run("slide.png", out="classes.png", memory="512 MiB", argmax=True)
"""

from tiled._network import Network, Plan
from tiled._tiled import __version__, builtin_names
from tiled.errors import BudgetError, Error, NetworkError

__all__ = ["BudgetError", "Error", "Network", "NetworkError", "Plan", "__version__", "builtin_names"]
