"""Features of a released encoder at a budget against its own dense ones, through `vgtok.wrap`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vgtok.encode.loading import read_state
from vgtok.errors import InputError, VGTokError
from vgtok.hosts.wrapping import unwrap, wrap
from vgtok.parallel import map_with_progress
from vgtok.study.paper import COMPACT, GATED, RANDOM, SINGLE_PASS, TOP_HAT
from vgtok.study.registry import weights_file
from vgtok.study.result import ImageJob, Panel, Read, Result, Row, line_plot, lines_by
from vgtok.study.tokenizers import SETTINGS
from vgtok.tokenize.canvas import fit_canvas, read_image
from vgtok.tokenize.tokenizer import Tokenizer

FRAMES = 5
"""Images, evenly spread over the data set: each takes forty forward passes."""

BUDGETS = (0.8, 0.6, 0.4, 0.2)
TOKENIZERS = (RANDOM, SINGLE_PASS, TOP_HAT, GATED, COMPACT)
_LONG, _SHORT = 73, 41
"""Most patches of a side: 1022 x 574 px for patches of 14 px."""

_Key = tuple[str, bool, float]


def compare_host(jobs: Sequence[ImageJob], name: str) -> Result:
    """Compare every tokenizer at matched budgets, with and without proportional attention."""
    model = load_encoder(name)
    measured: dict[_Key, list[tuple[float, float]]] = {}

    def step(job: ImageJob) -> None:
        for key, similarity in similarities(model, job):
            measured.setdefault(key, []).append(similarity)

    # One process: torch runs each pass on all cores.
    for _ in map_with_progress(step, jobs, workers=1, label="fidelity"):
        pass
    rows: list[Row] = [
        {
            "tokenizer": tokenizer,
            "proportional": proportional,
            "budget": budget,
            "on_objects": float(np.nanmean([on for on, _ in values])),
            "elsewhere": float(np.mean([rest for _, rest in values])),
        }
        for (tokenizer, proportional, budget), values in measured.items()
    ]
    notes = [
        f"{Path(name).name}, {len(jobs)} frames within {_LONG} x {_SHORT} patches; cosine similarity to dense features "
        "after the last norm, mean over patches",
        *(_ordering(rows, budget) for budget in BUDGETS),
        _effect(rows),
    ]
    plain = [row for row in rows if not row["proportional"]]
    panels = [
        Panel(
            lines_by(plain, "tokenizer", TOKENIZERS, "budget", column),
            {"xlabel": "share of the dense grid", "ylabel": "cosine similarity to dense", "title": title},
        )
        for column, title in (("on_objects", "on objects"), ("elsewhere", "elsewhere"))
    ]
    return Result(rows, notes, plot=line_plot(*panels, sharey=True), read=Read(jobs[0].data, len(jobs)))


@torch.inference_mode()
def similarities(model: Any, job: ImageJob) -> Iterator[tuple[_Key, tuple[float, float]]]:
    """Yield the mean similarity on objects and elsewhere in one image, for every setting."""
    patch = model.config.patch_size
    image = read_image(job.path)
    canvas = fit_canvas(image, (_LONG * patch, _SHORT * patch))
    rows, columns = canvas.height // patch, canvas.width // patch
    pixels = torch.from_numpy(canvas.image[: rows * patch, : columns * patch].copy()).permute(2, 0, 1)
    wrap(model)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (model.vgtok.mean, model.vgtok.std))
    unwrap(model)
    batch = ((pixels / 255 - mean) / std)[None]
    dense = _patches(model, batch, rows * columns)
    touched = torch.from_numpy(_touched(canvas.from_source(job.boxes) / patch, rows, columns)).flatten()
    for proportional in (False, True):
        for tokenizer in TOKENIZERS:
            for budget in BUDGETS:
                if tokenizer == SINGLE_PASS and budget < 0.25:
                    continue
                wrap(model, tokenizer=Tokenizer(budget=budget, **SETTINGS[tokenizer]), proportional=proportional)
                similarity = functional.cosine_similarity(_patches(model, batch, rows * columns), dense, dim=-1)
                unwrap(model)
                on_objects = float(similarity[touched].mean()) if touched.any() else float("nan")
                yield (tokenizer, proportional, budget), (on_objects, float(similarity[~touched].mean()))


def _patches(model: Any, batch: Tensor, count: int) -> Tensor:
    """Return the features of the patches of one image, (count, D): the last of the sequence."""
    hidden: Tensor = model(pixel_values=batch).last_hidden_state
    return hidden[0, -count:]


def _touched(boxes: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.bool_]:
    """Return which (rows, columns) patches any of the (N, 4) boxes in patches touches."""
    touched = np.zeros((rows, columns), dtype=np.bool_)
    for x0, y0, x1, y1 in boxes:
        touched[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))] = True
    return touched


def _ordering(rows: Sequence[Row], budget: float) -> str:
    chosen = [row for row in rows if row["budget"] == budget and not row["proportional"]]
    ordered = sorted(chosen, key=lambda row: float(row["on_objects"]))
    return f"on objects at {budget:.0%}: " + " < ".join(
        f"{row['tokenizer']} {row['on_objects']:.4f}" for row in ordered
    )


def _effect(rows: Sequence[Row]) -> str:
    on, off = (
        float(np.mean([row["on_objects"] for row in rows if row["proportional"] is setting]))
        for setting in (True, False)
    )
    return f"proportional attention, mean on objects over all settings: {on:.4f} with, {off:.4f} without"


# The encoder.


def load_encoder(name: str) -> Any:
    """Load a DINOv2 checkpoint with timm's names, a file or one in VGTOK_WEIGHTS, or `transformers:FOLDER`."""
    try:
        import transformers
    except ImportError:
        raise VGTokError("transformers is not installed; pip install 'vgtok[hosts]'") from None
    if name.startswith("transformers:"):
        folder = Path(name.removeprefix("transformers:"))
        if not (folder / "config.json").is_file():
            raise InputError(f"--model: {folder} is no folder with a model of transformers")
        return transformers.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
    path = Path(name) if Path(name).is_file() else weights_file(name)
    return dinov2_from_timm(read_state(path), str(path))


def dinov2_from_timm(state: Mapping[str, Tensor], origin: str) -> Any:
    """Build transformers' DINOv2 from the tensors of timm's, sizes and all."""
    from transformers import Dinov2Config, Dinov2Model

    try:
        dim, _, patch, _ = state["patch_embed.proj.weight"].shape
        depth = 1 + max(int(key.split(".")[1]) for key in state if key.startswith("blocks."))
        side = int((state["pos_embed"].shape[1] - 1) ** 0.5)
        named = {
            "embeddings.cls_token": state["cls_token"],
            "embeddings.position_embeddings": state["pos_embed"],
            **_pair(state, "patch_embed.proj", "embeddings.patch_embeddings.projection"),
            **_pair(state, "norm", "layernorm"),
        }
        for number in range(depth):
            old, new = f"blocks.{number}", f"encoder.layer.{number}"
            for kind in ("weight", "bias"):
                parts = zip("qkv", state[f"{old}.attn.qkv.{kind}"].chunk(3), strict=True)
                named |= {f"{new}.attention.{letter}_proj.{kind}": part for letter, part in parts}
            named |= _pair(state, f"{old}.attn.proj", f"{new}.attention.o_proj")
            for part in ("norm1", "norm2", "mlp.fc1", "mlp.fc2"):
                named |= _pair(state, f"{old}.{part}", f"{new}.{part}")
            for scale in ("1", "2"):
                named[f"{new}.layer_scale{scale}.lambda1"] = state[f"{old}.ls{scale}.gamma"]
    except (KeyError, ValueError) as error:
        raise InputError(f"{origin}: is no DINOv2 with timm's names ({error})") from None
    model: Any = Dinov2Model(
        Dinov2Config(
            hidden_size=dim,
            num_hidden_layers=depth,
            num_attention_heads=max(1, dim // 64),
            image_size=side * patch,
            patch_size=patch,
        )
    )
    # A mask token serves training alone.
    named["embeddings.mask_token"] = model.embeddings.mask_token.detach()
    model.load_state_dict({key: tensor.float() for key, tensor in named.items()})
    return model.eval()


def _pair(state: Mapping[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    return {f"{new}.{kind}": state[f"{old}.{kind}"] for kind in ("weight", "bias")}
