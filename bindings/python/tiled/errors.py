"""What goes wrong, as exceptions. What Python code raises that a run calls, Ctrl-C among it, comes through as it is."""


class Error(Exception):
    """Anything that the library refuses; its text names the layer, the input or the file, and the numbers that do not fit."""


class NetworkError(Error, ValueError):
    """A network that there is not, a model that is no network, or images that it does not fit."""


class BudgetError(Error, MemoryError):
    """A budget that no plan keeps to; the text says the smallest that one does."""
