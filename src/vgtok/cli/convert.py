"""`vgtok convert`: annotations from one format to another, saying what the new one cannot hold."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.data import convert as conversion
from vgtok.data.dataset import open_annotated


def convert(
    source: Annotated[str, typer.Argument(help="visdrone:DIR, aitodv2:DIR, coco:JSON:IMAGES or yolo:YAML.")],
    to: Annotated[str, typer.Option(help="visdrone, coco or yolo.")],
    out: Annotated[Path, typer.Option(help="The json file for coco, a folder otherwise; images are linked there.")],
    json_: options.Json = False,
) -> None:
    """Convert annotations; lossless where the format allows, and saying what is lost where not."""
    dataset = open_annotated(source)
    with Console(stderr=True).status("converting"):
        result = conversion.convert(dataset, to, out)
    if json_:
        print(json.dumps(asdict(result)))
        return
    console = Console(highlight=False)
    counts = {"images": result.images, "objects": result.objects, "ignored regions": result.regions}
    counts |= {"others": result.others, "crowds": result.crowds}
    console.print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    for label, sentences in (("lost", result.lost), ("in the source", result.problems)):
        for sentence in sentences:
            console.print(f"[yellow]{label}:[/] {escape(sentence)}")
    console.print(f"open it as {escape(result.spec)}", soft_wrap=True)
