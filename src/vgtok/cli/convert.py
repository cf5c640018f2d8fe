"""`vgtok convert` and `vgtok export`: annotations, training runs and checkpoints to other formats, detectors to ONNX.

`vgtok convert` without one of its commands converts annotations.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.cli.verbs import VerbGroup, Verbs
from vgtok.data.convert import convert_dataset
from vgtok.data.dataset import open_annotated
from vgtok.defaults import DEFAULT_MODEL
from vgtok.errors import InputError
from vgtok.files import is_there, read_json, read_lines, write_text
from vgtok.show.tables import cell_text, markdown_table, markdown_text
from vgtok.tokenize.tokenizer import PRESETS


class _AnnotationsByDefault(VerbGroup):
    """Read `vgtok convert visdrone:DIR ...` as `vgtok convert annotations visdrone:DIR ...`."""

    # The context is click's own or the copy inside typer, by version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["annotations", *args]
        return super().parse_args(ctx, args)


app = Verbs(
    cls=_AnnotationsByDefault,
    help="Convert annotations, training runs and Co-DETR checkpoints.",
)


export_app = Verbs(help="Export a detector for other runtimes.")


@app.command("annotations")
def annotations(
    source: Annotated[str, typer.Argument(help="visdrone:DIR, aitodv2:DIR, coco:JSON:IMAGES or yolo:YAML.")],
    to: Annotated[str, typer.Option(help="Target format: visdrone, coco or yolo.")],
    out: Annotated[Path, typer.Option(help="JSON file for coco, else a folder; images are linked, not copied.")],
    json_: options.Json = False,
) -> None:
    """Convert annotations, and report what the target format cannot hold. This is the default command."""
    dataset = open_annotated(source)
    with Console(stderr=True).status("converting"):
        result = convert_dataset(dataset, to, out)
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
    source: Annotated[Path, typer.Argument(help="Folder of a training run, or one of its checkpoints.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    table: Annotated[str | None, typer.Option(help="Retention table to include: a shipped name or a file.")] = None,
    license: Annotated[
        str,
        typer.Option(
            "--license",
            "--licence",
            help="What the model may be used for (default: the note of the model it started from).",
        ),
    ] = "",
    evaluation: Annotated[
        list[Path] | None, typer.Option(help="Output of `vgtok evaluate --json`, for the model card; repeatable.")
    ] = None,
    head: Annotated[options.HeadName | None, typer.Option(help="Prediction head (default: the recipe's).")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help=f"How images are split: {', '.join(PRESETS)} (default: the recipe's)."),
    ] = None,
    inference: Annotated[bool, typer.Option("--inference", help="Leave out the auxiliary training heads.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store the weights in fp16.")] = False,
    json_: options.Json = False,
) -> None:
    """Save the averaged weights of a training run as a model, with a model card and the losses of the run."""
    from vgtok.detect.saving import CARD_FILE, model_card, read_config, save_detector
    from vgtok.tokenize.retention import load_table
    from vgtok.train.run_to_model import HISTORY_FILE, detector_from_run, training_history, training_section

    documents = [_evaluation(path) for path in evaluation or ()]
    rows = [{name: one[name] for name in _CARD_COLUMNS if one.get(name) is not None} for one in documents]
    detector = detector_from_run(
        source,
        None if table is None else load_table(table),
        license,
        rows,
        head.value if head else None,
        tokenizer,
    )
    weights = save_detector(detector, out, auxiliary=() if inference else None, half=half)
    parts = [model_card(read_config(out), out.name), *_by_class(documents), training_section(source)]
    write_text(out / CARD_FILE, "\n".join(parts))
    write_text(out / HISTORY_FILE, training_history(source))
    megabytes = weights.stat().st_size / 1e6
    if json_:
        print(json.dumps({"model": str(out), "weights_mb": megabytes, "classes": list(detector.names)}))
    else:
        print(f"{out}: {megabytes:.1f} MB, {len(detector.names)} classes; open it as vgtok.load({str(out)!r})")


_CARD_COLUMNS = (
    "protocol",
    "images",
    "head",
    "dtype",
    "tokenizer",
    "budget",
    "AP",
    "AP50",
    "AP75",
    "APS",
    "APM",
    "APL",
)


def _evaluation(path: Path) -> dict[str, Any]:
    """Return what an evaluation printed."""
    document = read_json(path)
    if not isinstance(document, dict) or "protocol" not in document:
        raise InputError(f"{path}: not what vgtok evaluate --json prints")
    return document


def _by_class(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the section of the model card with the AP50 of each class in every evaluation that lists them."""
    listed = [one for one in documents if one.get("classes")]
    if not listed:
        return []
    columns = ["class", "boxes", *(f"AP50 at {one.get('budget', 1):.0%}" for one in listed)]
    by_name = [{entry["name"]: entry for entry in one["classes"]} for one in listed]
    rows = [
        [markdown_text(name), cell_text(entry["boxes"]), *(_points(own.get(name)) for own in by_name)]
        for name, entry in by_name[0].items()
    ]
    return ["## By class\n", markdown_table(columns, rows, numeric=True) + "\n"]


def _points(entry: Mapping[str, Any] | None) -> str:
    return "-" if entry is None or entry["ap50"] is None else f"{entry['ap50']:.1f}"


@app.command("co-detr")
def co_detr(
    source: Annotated[
        Path, typer.Argument(help="Released checkpoint (.pth, .safetensors), or a saved model's folder.")
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write; for a saved model, the checkpoint file to write.")],
    names: Annotated[
        str | None,
        typer.Option(help="Classes as 'a,b,c' or a text file; re-initializes the classifier if their number differs."),
    ] = None,
    proportional: Annotated[
        bool,
        typer.Option(
            "--proportional", help="Weigh coarse tokens in attention by the cells they cover; the paper does not."
        ),
    ] = False,
    inference: Annotated[bool, typer.Option("--inference", help="Leave out the auxiliary training heads.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Store the weights in fp16.")] = False,
    json_: options.Json = False,
) -> None:
    """Convert a Co-DETR checkpoint to a saved model, or back; every tensor must match."""
    if source.is_dir():
        if names is not None or proportional or inference or half:
            raise InputError(
                f"{source}: --names, --proportional, --inference and --half go with a checkpoint file, not a folder"
            )
        _to_checkpoint(source, out, json_=json_)
    else:
        _to_folder(
            source,
            out,
            _class_names(names),
            proportional=proportional,
            inference=inference,
            half=half,
            json_=json_,
        )


def _to_folder(
    source: Path,
    out: Path,
    names: list[str] | None,
    *,
    proportional: bool,
    inference: bool,
    half: bool,
    json_: bool,
) -> None:
    from vgtok.detect.checkpoint import convert_co_detr
    from vgtok.detect.saving import save_detector
    from vgtok.encode.loading import read_state

    if out.is_file():
        raise InputError(f"{out}: is a file; a model is written to a folder")
    with Console(stderr=True).status("converting"):
        converted = convert_co_detr(read_state(source), str(source), names, proportional=proportional)
        save_detector(converted.detector, out, auxiliary=() if inference else None, half=half)
    document = {
        "model": str(out),
        "tensors": converted.tensors,
        "classes": len(converted.detector.names),
        "parts": converted.detector.model.parts(),
        "reinitialised": list(converted.reinitialized),
        "license": converted.detector.license,
    }
    if json_:
        print(json.dumps(document))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"all {converted.tensors} tensors matched; {document['classes']} classes")
    for name in converted.reinitialized:
        console.print(f"[yellow]re-initialised:[/] {escape(name)}")
    console.print("default budget 1.0: the model was not trained on coarse tokens")
    console.print(f"[yellow]license:[/] {escape(converted.detector.license)}")
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
        console.print(f"[yellow]left out:[/] {escape(name)}, not part of the public layout")
    console.print(f"written to {escape(str(out))}")


def _class_names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    entries = read_lines(Path(text)) if is_there(Path(text)) else text.split(",")
    names = [entry.strip() for entry in entries if entry.strip()]
    if not names or len(set(names)) != len(names):
        raise InputError(f"--names: '{text}' does not give each class once; use 'a,b,c' or a file with one per line")
    return names


# Typer would otherwise replace a group of one command by that command.
@export_app.callback()
def _group() -> None: ...


@export_app.command()
def onnx(
    model: options.ModelArgument = None,
    model_option: Annotated[str | None, typer.Option("--model", help="The same, as other commands take it.")] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Number of tokens per image (default: nearest to the model's budget)."),
    ] = None,
    size: Annotated[str | None, typer.Option(help="Image size as WIDTHxHEIGHT (default: the model's canvas).")] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Allow any number of tokens; --tokens is then the default.")
    ] = False,
    head: options.Head = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Store weights in 8 bits: a quarter of the size, and faster.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write (default: NAME.onnx).")] = None,
    json_: options.Json = False,
) -> None:
    """Export a detector to ONNX for images of one size, for `vgtok.OnnxDetector` and other runtimes."""
    from vgtok.detect.loading import load
    from vgtok.export.onnx_file import export_onnx

    image_size = None if size is None else options.image_size(size)
    model = options.one_model(model, model_option) or DEFAULT_MODEL
    detector = load(model, device="cpu", dtype="float32")
    # The name in the file does not include local paths.
    name = Path(model).resolve().name if Path(model).exists() else model
    path = out or Path(f"{Path(name).stem if Path(model).is_file() else Path(name).name}.onnx")
    with Console(stderr=True).status("tracing"):
        description = export_onnx(
            detector,
            path,
            size=image_size,
            tokens=tokens,
            dynamic=dynamic,
            head=None if head is None else head.value,
            int8=int8,
            name=name,
        )
    document = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "model": description.model,
        "width": description.width,
        "height": description.height,
        "tokens": description.tokens,
        "dynamic": description.dynamic,
        "head": description.head,
        "precision": description.precision,
        "classes": len(description.names),
        "license": description.license,
    }
    if json_:
        print(json.dumps(document))
        return
    console = Console(highlight=False, soft_wrap=True)
    count = "any number of" if dynamic else f"{description.tokens:,}"
    console.print(
        f"{description.width} x {description.height} px as {count} tokens, {path.stat().st_size / 1e6:.0f} MB"
    )
    if description.license:
        console.print(f"[yellow]license:[/] {escape(description.license)}")
    console.print(f"open it as vgtok.OnnxDetector({str(path)!r})")
