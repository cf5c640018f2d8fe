"""`vgtok study`: reproduce tables and figures of the paper; without a name, list all of them."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok import __version__
from vgtok.cli import engines, options
from vgtok.cli.engines import EngineName, engine_from, model_worker
from vgtok.cli.options import said_when_interrupted
from vgtok.cli.wide_tables import fitting_tables
from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.subset import evenly_spaced
from vgtok.errors import InputError
from vgtok.files import read_json, write_bytes, write_text
from vgtok.parallel import Mapper, default_workers
from vgtok.runs import RUNS
from vgtok.show.claims import claims_page
from vgtok.show.tables import results_page
from vgtok.study.registry import (
    DATA,
    ENTRIES,
    STUDIES,
    Entry,
    data_kinds,
    data_present,
    data_problem,
    last_run,
    load_study,
    named_dataset,
    variable,
)
from vgtok.study.result import Inputs, Result, Row, Study

_ALL = "all"
_NOT_BY_FRAME = frozenset({"teaser", "method", "fidelity", "overfit", "grid", "seeds"})
"""Studies that draw one frame, train, or print what the paper has."""


class StudyHead(StrEnum):
    """Prediction heads of a study."""

    query = "query"
    atss = "atss"
    both = "both"


def study(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Study to run, or 'all' that train nothing; lists them if omitted.",
            autocompletion=lambda: [*STUDIES, _ALL],
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="visdrone:DIR or aitodv2:DIR; the name alone uses VGTOK_VISDRONE or VGTOK_AITODV2."),
    ] = None,
    frame: Annotated[str | None, typer.Option(help="For pictures: an image file, or a file stem of the data.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="For accuracy studies: a model's folder, file, shipped or hub name (default: vgtok-tiny). Repeatable "
            "for dense-epochs, which also takes a folder of checkpoints, for slicer, which also takes YOLO files, and "
            "for pareto, whose second model is one trained on all tokens only."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Number of images to use, evenly spaced (default: all); for grid, of scenes."),
    ] = None,
    head: Annotated[
        StudyHead | None,
        typer.Option(
            help="For accuracy studies: prediction head (default: the model's); ladder and dense-epochs also take both."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="For accuracy studies: cpu, cuda, cuda:N or mps (default: a GPU if there is one)."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="For accuracy studies: float32, float16 or bfloat16 (default: float32).")
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", help="For slicer: DATA=MODEL+MODEL, classes that stand for one of the data; repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder of all studies, which share detections (default: vgtok-runs/study)."),
    ] = None,
    workers: options.Workers = None,
    engine: engines.EngineOption = EngineName.local,
    address: engines.Address = None,
    worker: engines.WorkerSize = None,
    json_: options.Json = False,
) -> None:
    """Reproduce a table or figure of the paper; without a name, list all of them and what they need."""
    out = out or _results_folder()
    if name is None:
        _coverage(out, json_)
        return
    # Silence the memory profiler; it reads this variable at import.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    cluster = engine_from(engine, model_worker, address=address, worker=worker)
    mapper: Mapper | None = None
    if cluster is not None:
        from vgtok.scale.mapping import map_on_cluster

        mapper = partial(map_on_cluster, engine=replace(cluster, workers=workers))
    asked = {
        "data": data,
        "frame": frame,
        "model": model,
        "limit": limit,
        "head": head.value if head else None,
        "device": device,
        "dtype": dtype,
        "map": map_,
    }
    if name == _ALL:
        _run_all(asked, out, workers, mapper, json_=json_)
        return
    chosen = load_study(name)
    if mapper is not None and name in _NOT_BY_FRAME:
        raise InputError(f"--engine ray: study '{name}' is not computed frame by frame; run it with --engine local")
    _check_options(chosen, [option for option, value in asked.items() if value])
    document, result, written = _run(chosen, asked, out, workers, mapper)
    if json_:
        print(json.dumps(document))
    else:
        _print(chosen, result, written)


def _run(
    chosen: Study, asked: Mapping[str, Any], out: Path, workers: int | None, mapper: Mapper | None
) -> tuple[dict[str, Any], Result, list[Path]]:
    """Run one study by the options asked for, write its files, and return its document too."""
    data, frame, limit = asked["data"], asked["frame"], asked["limit"]
    # With an image of the user's own no data set is opened, unless one is named.
    dataset = named_dataset(data, data_kinds(chosen.name)) if data or not frame else None
    if dataset is not None and limit is not None and "model" not in chosen.takes:
        # Studies of the tokenizer ask no more of a part than a folder of images has.
        dataset = evenly_spaced(cast(AnnotatedDataset, dataset), limit)
    inputs = Inputs(
        dataset,
        workers or default_workers(),
        frame,
        out,
        tuple(asked["model"] or ()),
        limit,
        asked["head"],
        asked["device"] or "auto",
        asked["dtype"] or "float32",
        tuple(asked["map"] or ()),
        mapper,
        data,
    )

    def kept() -> str:
        if chosen.resumes:
            return f"what is finished is kept in {out}; run the same command to go on"
        return "nothing is kept, as this study writes its table at the end; --limit 20 takes 20 images"

    with said_when_interrupted(kept):
        result = chosen.run(inputs)
    document = {
        "study": chosen.name,
        "title": chosen.title,
        "data": result.read.data if result.read else None,
        "images": result.read.images if result.read else None,
        "ran_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "vgtok": __version__,
        "asked": _identity(chosen, asked),
        "rows": list(result.rows),
        "paper_only": list(result.paper_only),
        "notes": list(result.notes),
        **result.also,
    }
    return document, result, _write(document, result, out)


def _run_all(asked: Mapping[str, Any], out: Path, workers: int | None, mapper: Mapper | None, *, json_: bool) -> None:
    """Run every study that trains nothing; leave out those whose files in `out` have the same settings and code."""
    console = Console(stderr=json_, highlight=False, soft_wrap=True)
    rows: list[dict[str, Any]] = []
    for name in STUDIES:
        chosen = load_study(name)
        if chosen.frames == 0:
            continue
        # A smaller number of images asked for wins over the usual one of a study.
        limits = [limit for limit in (asked["limit"], chosen.frames) if limit is not None]
        own = {option: value if option in chosen.takes else None for option, value in asked.items()}
        if not {"head", "map"} & set(chosen.takes):
            # It takes an encoder, not the detector of the others.
            own["model"] = None
        if own["head"] == StudyHead.both and not chosen.both_heads:
            own["head"] = None
        own["limit"] = min(limits) if limits and "limit" in chosen.takes else None
        elsewhere = None if name in _NOT_BY_FRAME else mapper
        try:
            if _finished(out / f"{name}.json", _identity(chosen, own)):
                state = "done before"
            else:
                console.print(f"[bold]{name}[/]: {escape(chosen.title)}")
                _run(chosen, own, out, workers, elsewhere)
                state = "done"
        except InputError as error:
            state = str(error)
        console.print(f"{name}: {escape(state)}")
        rows.append({"study": name, "state": state})
    if json_:
        print(json.dumps({"out": str(out), "studies": rows}))
    else:
        console.print(f"all tables: {escape(str(out / 'README.md'))}")
    if any(row["state"] not in ("done", "done before") for row in rows):
        raise typer.Exit(1)


def _identity(chosen: Study, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the result of a study follows from: its options, and the code from pixels to tables."""
    from vgtok.study.cells import code_digest

    options_ = {option: value for option, value in asked.items() if value is not None and option != "device"}
    return {**options_, "code": code_digest(("tokenize", "encode", "detect", "evaluate", "slicing", "study"))[:16]}


def _finished(path: Path, identity: Mapping[str, Any]) -> bool:
    """Return whether a file holds the result of a study with this identity."""
    try:
        document = read_json(path)
    except InputError:
        return False
    return isinstance(document, dict) and document.get("asked") == json.loads(json.dumps(identity))


def _results_folder() -> Path:
    """Return the default folder; the one of version 0.2 where there is no other."""
    old, new = Path("vgtok-study"), RUNS / "study"
    return old if old.is_dir() and not new.exists() else new


def _check_options(chosen: Study, given: Sequence[str]) -> None:
    """Raise on options the study does not use."""
    unused = [f"--{option}" for option in given if option not in chosen.takes]
    if unused:
        taken = " and ".join(f"--{option}" for option in chosen.takes) or "none of these options"
        raise InputError(f"study '{chosen.name}': does not take {', '.join(unused)}; it takes {taken}")


def _write(document: dict[str, Any], result: Result, out: Path) -> list[Path]:
    stem = out / document["study"]
    paths = [stem.with_suffix(".json"), stem.with_suffix(".csv")]
    write_text(paths[0], json.dumps(document, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(result.rows[0]))
    writer.writeheader()
    writer.writerows(result.rows)
    write_text(paths[1], text.getvalue())
    if result.plot is not None:
        from vgtok.show.plot import render_plot

        picture = render_plot(result.plot)
        if picture is None:
            Console(stderr=True).print("no plot: matplotlib is missing; pip install 'vgtok[study]'", markup=False)
        else:
            write_bytes(stem.with_suffix(".png"), picture)
            paths.append(stem.with_suffix(".png"))
    for label, image in result.pictures.items():
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        paths.append(out / f"{label}.png")
        write_bytes(paths[-1], buffer.getvalue())
    write_text(out / "README.md", results_page(out))
    write_text(out / "claims.md", claims_page(out))
    return paths


def _print(chosen: Study, result: Result, written: Sequence[Path]) -> None:
    console = Console()
    for title, rows in ((chosen.title, result.rows), ("in the paper, not measured here", result.paper_only)):
        for table in _tables(title, rows, console.width) if rows else ():
            console.print(table)
    for note in result.notes:
        console.print(f"[dim]-[/] {escape(note)}")
    console.print(f"[dim]written: {escape(', '.join(map(str, written)))}[/]")


def _tables(title: str, rows: Sequence[Row], width: int) -> list[Table]:
    """Return the rows as tables of at most `width`; a column and its paper_ twin share one, as 'measured (paper)'."""
    twins = {column for column in rows[0] if f"paper_{column}" in rows[0]}
    shown = [column for column in rows[0] if column.removeprefix("paper_") not in twins or column in twins]
    numeric = [any(isinstance(row[column], int | float) for row in rows) for column in shown]
    cells = [
        [_text(row[column]) + (f" ({_text(row[f'paper_{column}'])})" if column in twins else "") for column in shown]
        for row in rows
    ]
    headings = [column.replace("_", " ") for column in shown]
    return fitting_tables(f"{title}{' (paper)' if twins else ''}", headings, cells, numeric, width)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    # Five digits, so that wide tables fit a terminal.
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{4 if abs(value) < 10 else 2}f}".rstrip("0").rstrip(".")


def _coverage(results: Path, json_: bool) -> None:
    if json_:
        print(json.dumps({"entries": [_described(entry, results) for entry in ENTRIES]}))
        return
    table = Table(
        title="every table and figure of the paper: vgtok study NAME",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    # Long cells wrap over several lines; names are never cut.
    for heading, narrow in (("item", 8), ("shows", 12), ("name", 12), ("data", 8), ("with", 5), ("here", 10)):
        table.add_column(heading, min_width=narrow, max_width=None if heading == "shows" else narrow, overflow="fold")
    for entry in ENTRIES:
        data = "\n".join(f"[{'green' if data_present(name) else 'yellow'}]{name}[/]" for name in entry.data)
        lacking = entry.needs()
        state = f"[yellow]no {', '.join(lacking)}[/]" if lacking else "[green]ready[/]"
        ran = last_run(entry.study, results)
        here = f"{state}\n{ran}" if ran else state
        table.add_row(entry.label, entry.title, entry.study, data or "-", entry.compared(), here)
    console = Console()
    console.print(table)
    console.print(
        "[dim]data in green is there by VGTOK_VISDRONE or VGTOK_AITODV2, in yellow by --data only. with: measured with "
        "the paper's model or tokenizer; with another model; with other data and another model; not measured, only the "
        f"paper's figures. Dates are those of the last run in {escape(str(results))}[/]"
    )
    for name in DATA:
        if os.environ.get(variable(name)) and (problem := data_problem(name)):
            console.print(f"[yellow]{escape(problem)}[/]", soft_wrap=True)


def _described(entry: Entry, results: Path) -> dict[str, Any]:
    lacking = entry.needs()
    return {
        "item": entry.label,
        "title": entry.title,
        "command": entry.command,
        "data": list(entry.data),
        "data_present": {name: data_present(name) for name in entry.data},
        "model": entry.model,
        "measured_on": entry.compared(),
        "ready": not lacking,
        "needs": list(lacking),
        "last_run": last_run(entry.study, results),
    }
