"""The errors a caller can be expected to handle: each message names the input, what was wrong, what to do."""


class VGTokError(Exception):
    """Base of every error this library raises on purpose."""


class InputError(VGTokError, ValueError):
    """An argument, file or array cannot be used as given."""


class BudgetError(InputError):
    """A token budget lies outside what the chosen tokenizer can reach."""


class RunInterruptedError(VGTokError):
    """A run was asked to stop, and has saved what it had."""


_EXTRAS = {"torch": "detect", "scipy": "detect", "safetensors": "detect"}
"""The extra of this package that brings what `pip install vgtok` leaves out."""


def explained(error: ModuleNotFoundError) -> Exception:
    """The error to raise for a package that is not there: what to install, where an extra brings it."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return error
    return VGTokError(f"{package} is not installed; pip install 'vgtok[{_EXTRAS[package]}]'")
