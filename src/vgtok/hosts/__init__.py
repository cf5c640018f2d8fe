"""Run models of transformers and timm at a token budget: `wrap` a model, and `unwrap` restores it bit for bit."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.hosts.adapters import Host, Pass, all_hosts, find_host
    from vgtok.hosts.plan import Plan
    from vgtok.hosts.wrapping import Wrapped, unwrap, wrap

__all__ = [
    "Host",
    "Pass",
    "Plan",
    "Wrapped",
    "all_hosts",
    "find_host",
    "unwrap",
    "wrap",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "adapters": ["Host", "Pass", "all_hosts", "find_host"],
        "plan": ["Plan"],
        "wrapping": ["Wrapped", "unwrap", "wrap"],
    },
)
