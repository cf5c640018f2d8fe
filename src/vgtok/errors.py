"""The errors a caller can be expected to handle: each message names the input, what was wrong, what to do."""


class VGTokError(Exception):
    """Base of every error this library raises on purpose."""


class InputError(VGTokError, ValueError):
    """An argument, file or array cannot be used as given."""


class BudgetError(InputError):
    """A token budget lies outside what the chosen tokenizer can reach."""
