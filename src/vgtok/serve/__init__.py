"""The web page and the HTTP endpoint."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.serve.access import Access, access_at
    from vgtok.serve.limits import Limits, RefusedError
    from vgtok.serve.server import create_app, listening
    from vgtok.serve.service import Answer, Service, Settings
    from vgtok.serve.uploads import Uploads

__all__ = [
    "Access",
    "Answer",
    "Limits",
    "RefusedError",
    "Service",
    "Settings",
    "Uploads",
    "access_at",
    "create_app",
    "listening",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "access": ["Access", "access_at"],
        "limits": ["Limits", "RefusedError"],
        "server": ["create_app", "listening"],
        "service": ["Answer", "Service", "Settings"],
        "uploads": ["Uploads"],
    },
)
