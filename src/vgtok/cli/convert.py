"""`vgtok convert`: annotations from one format to another, training runs and Co-DETR checkpoints to models.

What is converted is the first word after `convert`; without one of them it is annotations.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from vgtok.cli import options
from vgtok.cli.detect import HeadName
from vgtok.data import convert as conversion
from vgtok.data.dataset import open_annotated
from vgtok.errors import InputError
from vgtok.files import is_there, read_json, read_lines, write_text


class _AnnotationsByDefault(TyperGroup):
    """`vgtok convert visdrone:DIR ...` is `vgtok convert annotations visdrone:DIR ...`."""

    # The context is click's own or the copy inside typer, by version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["annotations", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_AnnotationsByDefault,
    no_args_is_help=True,
    help="Convert annotations, training runs, or Co-DETR checkpoints and back.",
)


@app.command("annotations")
def annotations(
    source: Annotated[str, typer.Argument(help="visdrone:DIR, aitodv2:DIR, coco:JSON:IMAGES or yolo:YAML.")],
    to: Annotated[str, typer.Option(help="visdrone, coco or yolo.")],
    out: Annotated[Path, typer.Option(help="The json file for coco, a folder otherwise; images are linked there.")],
    json_: options.Json = False,
) -> None:
    """Convert annotations; lossless where the format allows, and saying what is lost where not. The default."""
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


@app.command("run")
def run(
    source: Annotated[Path, typer.Argument(help="A training run's folder, or one of its checkpoints.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    table: Annotated[str | None, typer.Option(help="Retention table to carry along: a shipped name or a file.")] = None,
    licence: Annotated[
        str, typer.Option(help="What the model may be used for; by default what the model it started from may.")
    ] = "",
    evaluation: Annotated[
        list[Path] | None, typer.Option(help="What `vgtok evaluate --json` printed, for the card; repeatable.")
    ] = None,
    head: Annotated[HeadName | None, typer.Option(help="The head that predicts; the recipe's.")] = None,
    inference: Annotated[bool, typer.Option("--inference", help="Leave out the heads that only train.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store fp16.")] = False,
    json_: options.Json = False,
) -> None:
    """Turn the averaged weights of a training run into a model folder with its card and the losses of the run."""
    from vgtok.calibrate.tables import load_table
    from vgtok.detect.card import model_card
    from vgtok.detect.saving import CARD_FILE, read_config, save_detector
    from vgtok.train.outcome import HISTORY_FILE, detector_of, training_history, training_section

    rows = [_measured(path) for path in evaluation or ()]
    detector = detector_of(
        source, None if table is None else load_table(table), licence, rows, head.value if head else None
    )
    weights = save_detector(detector, out, auxiliary=() if inference else None, half=half)
    write_text(out / CARD_FILE, f"{model_card(read_config(out), out.name)}\n{training_section(source)}")
    write_text(out / HISTORY_FILE, training_history(source))
    megabytes = weights.stat().st_size / 1e6
    if json_:
        print(json.dumps({"model": str(out), "weights_mb": megabytes, "classes": list(detector.names)}))
    else:
        print(f"{out}: {megabytes:.1f} MB, {len(detector.names)} classes; open it as vgtok.load({str(out)!r})")


def _measured(path: Path) -> dict[str, Any]:
    """The row of a model card one evaluation makes."""
    document = read_json(path)
    if not isinstance(document, dict) or "protocol" not in document:
        raise InputError(f"{path}: not what vgtok evaluate --json prints")
    columns = ("protocol", "images", "head", "budget", "AP", "AP50", "AP75", "APS", "APM", "APL")
    return {name: document[name] for name in columns if document.get(name) is not None}


@app.command("co-detr")
def co_detr(
    source: Annotated[
        Path, typer.Argument(help="A released checkpoint (.pth, .safetensors), or a saved model's folder.")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to write; from a folder, the checkpoint file.")],
    names: Annotated[
        str | None,
        typer.Option(help="Classes wanted: 'a,b,c' or a text file with one per line. Other counts start these anew."),
    ] = None,
    inference: Annotated[bool, typer.Option("--inference", help="Leave out the heads that only train.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store fp16.")] = False,
    json_: options.Json = False,
) -> None:
    """Turn a Co-DETR checkpoint into a model folder, or a model folder into a checkpoint; strict both ways."""
    if source.is_dir():
        if names is not None or inference or half:
            raise InputError(f"{source}: --names, --inference and --half go with a checkpoint file, not with a folder")
        _to_checkpoint(source, out, json_=json_)
    else:
        _to_folder(source, out, _class_names(names), inference=inference, half=half, json_=json_)


def _to_folder(source: Path, out: Path, names: list[str] | None, *, inference: bool, half: bool, json_: bool) -> None:
    from vgtok.detect.checkpoint import convert_co_detr
    from vgtok.detect.saving import save_detector
    from vgtok.encode.loading import read_state

    if out.is_file():
        raise InputError(f"{out}: is a file; a model is written to a folder")
    with Console(stderr=True).status("converting"):
        converted = convert_co_detr(read_state(source), str(source), names)
        save_detector(converted.detector, out, auxiliary=() if inference else None, half=half)
    document = {
        "model": str(out),
        "tensors": converted.tensors,
        "classes": len(converted.detector.names),
        "parts": converted.detector.model.parts(),
        "reinitialised": list(converted.reinitialised),
        "licence": converted.detector.licence,
    }
    if json_:
        print(json.dumps(document))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"all {converted.tensors} tensors matched; {document['classes']} classes")
    for name in converted.reinitialised:
        console.print(f"[yellow]re-initialised:[/] {escape(name)}")
    console.print("reads all tokens by default: it was never trained on coarse ones")
    console.print(f"[yellow]licence:[/] {escape(converted.detector.licence)}")
    console.print(f"open it as vgtok.load({str(out)!r})")


def _to_checkpoint(source: Path, out: Path, *, json_: bool) -> None:
    from vgtok.detect.checkpoint import write_co_detr
    from vgtok.detect.saving import load_detector

    if out.is_dir():
        raise InputError(f"{out}: is a folder; a checkpoint is written to a file, .pth or .safetensors")
    with Console(stderr=True).status("converting"):
        left_out = write_co_detr(load_detector(source), out)
    if json_:
        print(json.dumps({"checkpoint": str(out), "left_out": left_out}))
        return
    console = Console(highlight=False, soft_wrap=True)
    for name in left_out:
        console.print(f"[yellow]left out:[/] {escape(name)}, which the public layout has no place for")
    console.print(f"written to {escape(str(out))}")


def _class_names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    entries = read_lines(Path(text)) if is_there(Path(text)) else text.split(",")
    names = [entry.strip() for entry in entries if entry.strip()]
    if not names or len(set(names)) != len(names):
        raise InputError(f"--names: '{text}' does not give each class once; use 'a,b,c' or a file with one per line")
    return names
