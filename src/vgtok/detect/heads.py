"""The heads that predict, by name: apart from the configuration, which needs torch, for a runtime without it."""

from typing import Literal

Head = Literal["query", "atss"]
"""The head of queries, or the one-stage head trained beside it."""
