"""Other people's models at your budget: `wrap` a model of transformers or timm, `unwrap` it again bit for bit."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.hosts.adapters import HOSTS, Host, find_host
    from vgtok.hosts.wrapping import Wrapped, unwrap, wrap

__all__ = [
    "HOSTS",
    "Host",
    "Wrapped",
    "find_host",
    "unwrap",
    "wrap",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "adapters": ["HOSTS", "Host", "find_host"],
        "wrapping": ["Wrapped", "unwrap", "wrap"],
    },
)
