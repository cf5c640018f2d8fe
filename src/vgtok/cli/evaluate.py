"""`vgtok evaluate`: score detections or a model on a data set, as a table, JSON or a report."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import engines, options
from vgtok.cli.detections import weights_stamp
from vgtok.cli.engines import EngineName, engine_from, model_worker
from vgtok.cli.loading import check_head, named_tokenizer, open_detector
from vgtok.cli.options import said_when_interrupted
from vgtok.data.dataset import open_annotated
from vgtok.data.subset import evenly_spaced
from vgtok.errors import InputError
from vgtok.evaluate.classes import map_text, parse_class_map
from vgtok.evaluate.comparison import DETECTIONS_FIELD, Difference, compare_scored, read_other, results_rows
from vgtok.evaluate.detections import read_predictions
from vgtok.evaluate.evaluation import ClassResult, Evaluation, apply_protocol, evaluate_scored, find_mistakes
from vgtok.evaluate.protocols import protocol_for
from vgtok.files import write_text
from vgtok.runs import run_folder


def evaluate(
    data: options.AnnotatedData,
    predictions: Annotated[
        Path | None, typer.Option(help="COCO results JSON; image_id is the integer id, the file name or its stem.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model to run, instead of --predictions: a name, a folder or a file, also an exported .onnx."
        ),
    ] = None,
    budget: options.ModelBudget = None,
    head: options.Head = None,
    sparse_head: options.SparseHead = None,
    tokenizer: options.TokenizerName = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    limit: Annotated[
        int | None, typer.Option(min=1, help="With --model: number of images to use, evenly spaced.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="visdrone, visdrone-toolkit, aitodv2 or coco (default: the data set's)."),
    ] = None,
    max_detections: Annotated[
        int | None, typer.Option(help="With --protocol coco: maximum detections per class and image (default: 100).")
    ] = None,
    score_threshold: Annotated[
        float | None, typer.Option(help="Also report precision and recall at IoU 0.5 above this score.")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", help="With --model: DATA=MODEL+MODEL, classes that stand for one of the data; repeatable."
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="COCO results, or the report folder or JSON of another evaluation of the same data."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Folder to write an HTML and Markdown report and the detections to.")
    ] = None,
    engine: engines.EngineOption = EngineName.local,
    address: engines.Address = None,
    workers: engines.Workers = None,
    worker: engines.WorkerSize = None,
    shards: engines.Shards = None,
    shard_frames: engines.ShardFrames = None,
    json_: options.Json = False,
) -> None:
    """Compute AP by class; also print max detections, images and boxes scored."""
    cluster = engine_from(
        engine,
        model_worker,
        address=address,
        workers=workers,
        worker=worker,
        shards=shards,
        shard_frames=shard_frames,
    )
    if (predictions is None) == (model is None):
        raise InputError("evaluate: give either --predictions or --model")
    if cluster is not None and model is None:
        raise InputError("--engine ray: goes with --model; a results file is scored in this process")
    if limit is not None and model is None:
        raise InputError("--limit: goes with --model; a results file is scored over all images")
    if map_ and model is None:
        raise InputError("--map: goes with --model; a results file has the category ids of the data")
    class_map = parse_class_map(map_ or [])
    dataset = open_annotated(data)
    rules = protocol_for(protocol, dataset.name, max_detections)
    errors = Console(stderr=True)
    run: dict[str, Any] = {"source": data}
    if predictions is not None:
        with errors.status("reading"):
            detections = read_predictions(predictions, dataset)
        run |= {"predictions": str(predictions), DETECTIONS_FIELD: str(predictions.absolute())}
    else:
        from vgtok.evaluate.detections import class_labels, run_detector

        assert model is not None
        dataset = dataset if limit is None else evenly_spaced(dataset, limit)
        detector = open_detector(model, device, dtype, sparse_head, tokenizer)
        check_head(detector, head, model)
        chosen = head.value if head else detector.head
        budget = detector.budget if budget is None else budget
        reader = detector.tokenizer(budget)
        if cluster is not None:
            from vgtok.cli.scaled import score_frames

            settings = {"model": model, "weights": weights_stamp(model), "budget": budget, "head": chosen}
            settings |= {"dtype": detector.precision, "sparse_head": getattr(detector, "sparse_head", False)}
            settings |= named_tokenizer(detector)
            folder = shards or str(run_folder("evaluate", [data], {**settings, "limit": limit}) / "shards")
            labels = class_labels(detector.names, dataset, class_map)
            ran, shard_run = score_frames(
                model,
                detector.names,
                dataset,
                labels,
                reader,
                rules.max_detections,
                chosen,
                dtype,
                getattr(detector, "sparse_head", False),
                cluster,
                folder,
                shard_frames,
                settings,
            )
            run["scale"] = shard_run.to_dict()
        else:
            with said_when_interrupted(lambda: "nothing is kept, as AP needs every image; --limit 20 takes 20 of them"):
                ran = run_detector(
                    detector, dataset, reader, rules.max_detections, chosen, progress=True, class_map=class_map
                )
        detections = ran.detections
        run |= {
            "model": model,
            "head": chosen,
            "sparse_head": getattr(detector, "sparse_head", False),
            "budget": budget,
            "tokenizer": detector.tokenizer_name,
            "dtype": detector.precision,
            **ran.to_dict(),
        }
    with errors.status("evaluating"):
        scored = apply_protocol(dataset, detections, rules)
        result = evaluate_scored(dataset.name, scored, len(detections), rules)
    differences: tuple[Difference, ...] = ()
    if compare is not None:
        other = read_other(compare, dataset)
        with errors.status("comparing"):
            differences = compare_scored(scored, apply_protocol(dataset, other, rules), rules)
        run |= {"compared_with": str(compare), "differences": [one.to_dict() for one in differences]}
    if report is not None:
        from vgtok.show.report import write_report

        with errors.status("writing the report"):
            if model is not None:
                place = report / "detections.json"
                write_text(place, json.dumps(results_rows(detections, dataset)))
                run[DETECTIONS_FIELD] = str(place.absolute())
            mistakes = find_mistakes(scored, rules.max_detections)
            write_report(result, mistakes, dataset.images, report, run, differences)
    if score_threshold is not None:
        verdict = find_mistakes(scored, rules.max_detections, score_threshold)
        run |= {"score_threshold": score_threshold, "precision": verdict.precision, "recall": verdict.recall}
    if json_:
        print(json.dumps({**result.to_dict(), **run}))
        return
    _print(result)
    if score_threshold is not None:
        print(
            f"precision {run['precision']:.2f}, recall {run['recall']:.2f} at IoU 0.5, "
            f"detections of score {score_threshold:g} and above"
        )
    if compare is not None:
        _print_comparison(compare, differences)
    _print_run(run, report)


def _print_comparison(other: Path, differences: tuple[Difference, ...]) -> None:
    rows = [
        (
            one.metric,
            f"{one.value:.2f}",
            f"{one.other:.2f}",
            f"{one.difference:+.2f}",
            f"{one.low:+.2f} to {one.high:+.2f}",
            one.verdict,
        )
        for one in differences
    ]
    columns = ("", "this", "other", "difference", "95% interval", "")
    Console().print(options.console_table(f"compared with {other}", columns, rows))


def _print_run(run: Mapping[str, Any], report: Path | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if "model" in run:
        console.print(
            f"{escape(run['model'])} at budget {run['budget']:g} ({run['retained']:.2%} of the tokens) by "
            f"{run['tokenizer']}, {run['head']} head{', sparse' if run['sparse_head'] else ''}, {run['dtype']}, "
            f"{run['ms']:.0f} ms per image"
        )
        console.print(f"classes: {escape(map_text(run['class_map']))}")
        for label, names in (
            ("not in the data", run["unused_classes"]),
            ("not known to the model", run["missing_classes"]),
        ):
            if names:
                console.print(f"[yellow]classes {label}:[/] {escape(', '.join(names))}")
    console.print(f"data: {escape(run['source'])}")
    if report is not None:
        console.print(f"[dim]report: {escape(str(report / 'report.html'))}[/]")


def _print(result: Evaluation) -> None:
    table = Table(title=f"{result.data}, protocol {result.protocol.name}", title_justify="left")
    table.add_column("")
    for name in result.metrics:
        table.add_column(name, justify="right")
    table.add_row("points", *map(_points, result.metrics.values()))
    counts = {"AP": result.instances, **result.band_boxes}
    table.add_row("scored boxes", *(f"{counts[name]:,}" if name in counts else "" for name in result.metrics))
    console = Console()
    console.print(table)
    console.print(_class_table("by class", result.classes))
    if result.band_classes:
        console.print(_class_table(f"{result.protocol.class_band} by class", result.band_classes))
    console.print(
        f"max detections {result.max_detections} per class and image, {result.images:,} images, "
        f"{result.instances:,} scored boxes, {result.detections:,} detections ({result.ignored:,} ignored)",
        highlight=False,
    )
    for note in result.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)


def _class_table(title: str, classes: tuple[ClassResult, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("class", "boxes", "AP", "AP50", "share of the mean"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for entry in classes:
        if entry.ap is not None:
            shown = (f"{entry.boxes:,}", _points(entry.ap), _points(entry.ap50), f"{entry.share:.3f}")
            table.add_row(escape(entry.name), *shown)
    return table


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
