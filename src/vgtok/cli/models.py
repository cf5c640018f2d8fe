"""`vgtok models`: every detector by name, with its parameters by part and what it costs dense."""

import json
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from vgtok.cli import options
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import InputError
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer

_PARTS = ("encoder", "neck", "query_head", "rpn_head", "roi_head", "atss_head")


def models(
    name: Annotated[str | None, typer.Argument(help="One configuration only.")] = None,
    json_: options.Json = False,
) -> None:
    """List detectors: configurations to train or to convert checkpoints for, and models the package ships."""
    from vgtok.detect.config import DETECTORS
    from vgtok.detect.loading import shipped_models
    from vgtok.detect.saving import read_config

    if name is not None and name not in DETECTORS:
        raise InputError(f"name: '{name}' is not one of {', '.join(DETECTORS)}")
    rows = [_counted(key) for key in ([name] if name else DETECTORS)]
    shipped = [
        {"name": key, "classes": read_config(folder)["config"]["names"], "license": read_config(folder)["license"]}
        for key, folder in shipped_models().items()
    ]
    if json_:
        print(json.dumps({"models": rows, "shipped": shipped}))
        return
    # Without lines: ten columns of figures must fit a terminal of 80.
    title = "detectors, millions of parameters, GFLOPs dense at 2048 x 1152"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    table.add_column("name", no_wrap=True)
    for heading in ("encoder", "neck", "query", "RPN", "RoI", "ATSS", "all", "+ fusion", "GFLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        numbers = [row["parts"].get(part, 0) for part in _PARTS] + [row["parameters"], row["parameters_with_fusion"]]
        cells = (f"{count / 1e6:.2f}" for count in numbers)
        table.add_row(row["name"], *cells, f"{row['dense_gflops']:.0f}")
    console = Console()
    console.print(table)
    console.print(f"with weights in the package: {', '.join(entry['name'] for entry in shipped) or 'none'}")


def _counted(name: str) -> dict[str, Any]:
    """Parameters of a configuration, the fusion of coarse tokens, which no dense model has, apart; and its cost."""
    from vgtok.detect.config import DETECTORS
    from vgtok.detect.model import detection_flops, detector_parameters
    from vgtok.encode.flops import encoder_flops

    config = DETECTORS[name]
    parts = detector_parameters(config)
    everything = sum(parts.values())
    # Dense costs do not depend on what the frame shows.
    width, height = DEFAULT_CANVAS
    tokens = Tokenizer(budget=1.0)(np.zeros((height, width, 3), dtype=np.uint8))
    grid = tokens.extent.rows(CELL), tokens.extent.columns(CELL)
    flops = sum(encoder_flops("dense", config.encoder_config(), tokens)) + sum(detection_flops(config, *grid).values())
    return {
        "name": name,
        "classes": config.classes,
        "queries": config.queries,
        "parameters": everything - parts["fusion"],
        "parameters_with_fusion": everything,
        "parts": parts,
        "dense_gflops": flops / 1e9,
    }
