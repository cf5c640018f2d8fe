"""The controls of the page: what each event sends, and the link that sets them all."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from vgtok.data.synthetic import LAYOUTS
from vgtok.serve.limits import RefusedError
from vgtok.serve.service import Service, Settings
from vgtok.tokenize.scores import SCORES

SAMPLES = LAYOUTS
"""Names of the rendered images on offer."""

YOUR_IMAGE = "your image"
"""Choice of the image that was uploaded."""

LEAST_PER_CENT = {"quadtree": 7, "single_pass": 25}
"""Minimum of the budget slider: what each splitter reaches, rounded up."""


@dataclass(frozen=True)
class Controls:
    """Values of the controls, in the order in which the page shows them; an empty number field is None."""

    image: str
    per_cent: float | None
    score_threshold: float | None
    dense: bool
    rank: float | None
    scorer: str
    splitter: str

    @property
    def settings(self) -> Settings:
        """Settings of the tokenizer; an empty number field counts as the default."""
        # The slider follows the splitter, but an event may arrive before it has.
        budget = None if self.per_cent is None else max(self.per_cent, LEAST_PER_CENT[self.splitter]) / 100
        return Settings(budget, self.rank, self.scorer, self.splitter)

    def values(self) -> tuple[object, ...]:
        """Return the values in their order."""
        return astuple(self)


@dataclass(frozen=True)
class ImageSource:
    """Where the pixels of one event come from: an upload, else a rendered image."""

    path: str | None
    rendered: str | None

    @classmethod
    def chosen(cls, path: str | None, image: str) -> "ImageSource":
        """Return the upload if it is the image in use, else the rendered image of that name."""
        return cls(path, None) if image == YOUR_IMAGE else cls(None, image)

    @property
    def name(self) -> str:
        """File name of the image."""
        return Path(self.path).name if self.path else f"{self.rendered}.png" if self.rendered else YOUR_IMAGE

    @property
    def stem(self) -> str:
        """File name without its suffix."""
        return Path(self.name).stem


def check_event(data: Sequence[object]) -> None:
    """Refuse what no event of the page sends: it is nothing, or an upload and the values of `Controls`."""
    if not data:
        return
    upload, *values = data
    controls = Controls(*values)  # type: ignore[arg-type]  # they are checked below
    numbers = ((controls.per_cent, 100), (controls.score_threshold, 1), (controls.rank, 1))
    if not (
        (upload is None or (isinstance(upload, dict) and isinstance(upload.get("path"), str)))
        and controls.image in (*SAMPLES, YOUR_IMAGE)
        and all(value is None or (isinstance(value, int | float) and 0 <= value <= most) for value, most in numbers)
        and isinstance(controls.dense, bool)
        and controls.scorer in tuple(SCORES)
        and controls.splitter in tuple(LEAST_PER_CENT)
    ):
        raise RefusedError(400, "request: holds settings that the page does not send")


def default_controls(service: Service) -> Controls:
    """Return the controls of a page opened without a link."""
    own = service.completed(Settings())
    assert own.scorer is not None
    assert own.splitter is not None
    return Controls(
        SAMPLES[0], round(100 * service.budget), service.score_threshold, False, own.rank, own.scorer, own.splitter
    )


def linked_controls(query: Mapping[str, str], service: Service) -> tuple[Controls, list[str]]:
    """Return the controls that the parameters of an address set, and a sentence for each that cannot be.

    The parameters have the names and units of the endpoint: budget, rank, scorer, splitter and score_threshold; with
    sample, the name of a rendered image, and dense, 1 to compare.
    """
    default, faults = default_controls(service), []

    def number(name: str, low: float, high: float, otherwise: float | None) -> float | None:
        try:
            value = float(query.get(name, "nan" if otherwise is None else otherwise))
        except ValueError:
            value = float("nan")
        if low <= value <= high:
            return value
        faults.append(f"link: {name}={query.get(name)} is not a number from {low:g} to {high:g}; left as it was")
        return otherwise

    def choice(name: str, allowed: tuple[str, ...], otherwise: str) -> str:
        value = query.get(name, otherwise)
        if value in allowed:
            return value
        faults.append(f"link: {name}={value} is not one of {', '.join(allowed)}; left as it was")
        return otherwise

    splitter = choice("splitter", tuple(LEAST_PER_CENT), default.splitter)
    share = number("budget", LEAST_PER_CENT[splitter] / 100, 1, max(service.budget, LEAST_PER_CENT[splitter] / 100))
    controls = Controls(
        choice("sample", SAMPLES, default.image),
        None if share is None else round(100 * share),
        number("score_threshold", 0, 1, default.score_threshold),
        choice("dense", ("0", "1"), "0") == "1",
        number("rank", 0, 0.95, default.rank),
        choice("scorer", tuple(SCORES), default.scorer),
        splitter,
    )
    return controls, faults


LINK_SCRIPT = f"""({", ".join(field.name for field in fields(Controls))}) => {{
  const query = new URLSearchParams({{
    budget: per_cent / 100, score_threshold, dense: dense ? 1 : 0, rank, scorer, splitter,
  }});
  if (image !== {YOUR_IMAGE!r}) query.set("sample", image);
  history.replaceState(null, "", `${{location.pathname}}?${{query}}`);
}}"""
"""Puts the values of the controls into the address, so that it is a link to them; an upload is not part of it."""

FIT_SCRIPT = f"""(splitter, per_cent) => {{
  const least = {LEAST_PER_CENT}[splitter];
  // A valid budget is left alone, and so is an empty one.
  const budget = per_cent !== null && per_cent < least ? least : undefined;
  return [budget, {{__type__: "update", interactive: splitter === "quadtree"}}];
}}"""
"""Keeps the sliders within the range of the splitter; only a quadtree has a gate."""

COPY_SCRIPT = """() => {
  if (navigator.clipboard) navigator.clipboard.writeText(location.href);
  else prompt("Link to these settings", location.href);
}"""
"""Copies the address; browsers offer their clipboard to this machine and to TLS only."""
