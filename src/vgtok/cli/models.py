"""`vgtok models`: every detector by name, with its parameters by part."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from vgtok.cli import options
from vgtok.errors import InputError

_PARTS = ("encoder", "neck", "query_head", "rpn_head", "roi_head", "atss_head")


def models(
    name: Annotated[str | None, typer.Argument(help="One configuration only.")] = None,
    json_: options.Json = False,
) -> None:
    """List detectors: configurations to train or to convert checkpoints for, and models the package ships."""
    from vgtok.detect.hub import shipped_models
    from vgtok.detect.registry import DETECTORS
    from vgtok.detect.saving import read_config

    if name is not None and name not in DETECTORS:
        raise InputError(f"name: '{name}' is not one of {', '.join(DETECTORS)}")
    rows = [_counted(key) for key in ([name] if name else DETECTORS)]
    shipped = [
        {"name": key, "classes": read_config(folder)["config"]["names"], "licence": read_config(folder)["licence"]}
        for key, folder in shipped_models().items()
    ]
    if json_:
        print(json.dumps({"models": rows, "shipped": shipped}))
        return
    # Without lines: nine columns of figures must fit a terminal of 80.
    table = Table(title="detectors, millions of parameters", title_justify="left", box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("encoder", "neck", "query", "RPN", "RoI", "ATSS", "all", "+ fusion"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        numbers = [row["parts"].get(part, 0) for part in _PARTS] + [row["parameters"], row["parameters_with_fusion"]]
        table.add_row(row["name"], *(f"{count / 1e6:.2f}" for count in numbers))
    console = Console()
    console.print(table)
    console.print(f"with weights in the package: {', '.join(entry['name'] for entry in shipped) or 'none'}")


def _counted(name: str) -> dict[str, Any]:
    """Parameters of a configuration; the fusion of coarse tokens, which no dense model has, is told apart."""
    import torch

    from vgtok.detect.model import CoDetr
    from vgtok.detect.registry import DETECTORS

    config = DETECTORS[name]
    # Parameters are counted, not made: the meta device holds shapes alone.
    with torch.device("meta"):
        parts = CoDetr(config).parts()
    everything = sum(parts.values())
    return {
        "name": name,
        "classes": config.classes,
        "queries": config.queries,
        "parameters": everything - parts["fusion"],
        "parameters_with_fusion": everything,
        "parts": parts,
    }
