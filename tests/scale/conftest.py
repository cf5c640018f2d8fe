"""Models of these tests run at one thread, as each worker does."""

from tests.one_thread import one_thread

__all__ = ["one_thread"]
