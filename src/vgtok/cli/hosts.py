"""`vgtok hosts`: the families of models of other libraries that run at a budget, and what each supports."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from vgtok.cli import options


def hosts(json_: options.Json = False) -> None:
    """List the models of transformers and timm that vgtok.wrap and --model transformers:FOLDER take."""
    from vgtok.hosts.adapters import REFUSED, all_hosts

    rows = [_described(host) for host in all_hosts()]
    if json_:
        refused = [{"library": library, "class": name, "reason": reason} for (library, name), reason in REFUSED.items()]
        print(json.dumps({"hosts": rows, "refused": refused}))
        return
    table = Table(title="models that run at a budget", title_justify="left", box=None, pad_edge=False)
    for heading in ("family", "library", "detector", "windows", "hidden states"):
        table.add_column(heading)
    for row in rows:
        marks = ("yes" if row[key] else "-" for key in ("windows", "hidden_states"))
        table.add_row(row["family"], row["library"], "yes" if row["detectors"] else "-", *marks)
    console = Console()
    console.print(table)
    console.print("'vgtok hosts --json' names the classes of each family, its image sizes and its limits")


def _described(host: Any) -> dict[str, Any]:
    return {
        "family": host.name,
        "library": host.library,
        "classes": list(host.classes),
        "detectors": list(host.detectors),
        "windows": bool(host.held),
        "hidden_states": host.hidden_states,
        "attentions": False,
        "proportional": host.mask is not None,
        "compile": True,
        "sizes": host.sizes,
        "options": list(host.options),
        "note": host.note,
    }
