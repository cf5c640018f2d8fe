"""Run a host's own layers on the tokens of a plan: embed, attend inside groups, and keep the depths asked for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vgtok.encode.coarse import resample
from vgtok.hosts.adapters import Arguments, Host
from vgtok.hosts.plan import Plan


def embed(module: nn.Module, host: Host, plan: Plan, pixel_values: Tensor, options: Mapping[str, Any]) -> Tensor:
    """Embed the tokens of (B, 3, H, W) normalized images as the packed (N, D) sequence.

    The host embeds one black image. What it adds to a cell, mostly a position, is that embedding without the bias of
    the projection; a coarse token gets the mean over its cells.
    """
    projection = attrgetter(host.projection)(module)
    with _without_dropout(module):
        blank: Tensor = host.embed(module, pixel_values.new_zeros(1, *pixel_values.shape[1:]), options)[0]
    before, after = host.special(module)
    cells = plan.grid[0] * plan.grid[1]
    added = blank[before : before + cells]
    if projection.bias is not None:
        added = added - projection.bias
    vectors = _projected(projection, plan, pixel_values) + plan.average(added)
    sequence = vectors.new_zeros(len(plan), vectors.shape[1]).index_copy(0, plan.slot, vectors)
    special = torch.cat([blank[:before], blank[len(blank) - after :]]).to(sequence.dtype)
    sequence = sequence.index_copy(0, plan.special.flatten(), special.repeat(len(plan.special), 1))
    return sequence if host.before_layers is None else attrgetter(host.before_layers)(module)(sequence)


def run_layers(
    module: nn.Module,
    host: Host,
    plan: Plan,
    sequence: Tensor,
    pixel_values: Tensor,
    depths: set[int],
    *,
    proportional: bool,
) -> dict[int, Tensor]:
    """Run all layers on a packed (N, D) sequence; return it at the depths asked for, 0 being the embedding."""
    kept = {0: sequence} if 0 in depths else {}
    arguments = host.arguments(module, plan, pixel_values)
    if host.mask is not None:
        arguments = _with_mask(arguments, host.mask, _key_bias(plan, sequence) if proportional else None)
    additions = _additions(host, module, plan, pixel_values)
    layers = attrgetter(host.layers)(module)
    call = _recomputed if host.checkpointed(module) and torch.is_grad_enabled() else _call
    for number, layer in enumerate(layers, start=1):
        groups = plan.windows if host.is_windowed(layer) else plan.images
        sequence = groups.each(sequence, partial(call, layer, arguments))
        if number in depths:
            kept[number] = sequence
        if additions is not None and number <= len(additions):
            sequence = sequence + additions[number - 1]
    return kept


def _call(layer: nn.Module, arguments: Arguments, batch: Tensor, slots: Tensor) -> Tensor:
    output: Tensor = layer(batch, **arguments(slots))
    return output


def _recomputed(layer: nn.Module, arguments: Arguments, batch: Tensor, slots: Tensor) -> Tensor:
    output: Tensor = checkpoint(layer, batch, use_reentrant=False, **arguments(slots))
    return output


def _projected(projection: nn.Module, plan: Plan, pixel_values: Tensor) -> Tensor:
    """Project the pixels under each token, a coarse region resized to one patch: (T, D)."""
    rows, columns = plan.grid
    [patch] = {*projection.kernel_size}  # type: ignore[misc]
    # (B, 3, rows * patch, columns * patch) to (B, rows, columns, 3, patch, patch): a view, no pixel moves
    whole = pixel_values[:, :, : rows * patch, : columns * patch]
    grid = torch.unflatten(torch.unflatten(whole, 3, (columns, patch)), 2, (rows, patch)).permute(0, 2, 4, 1, 3, 5)
    order, parts = [], []
    for span in plan.spans:
        chosen = torch.nonzero(plan.span == span).flatten()
        step = torch.arange(span, device=chosen.device)
        # (n, span, span): at a ragged edge the last cells of the grid repeat
        down = (plan.row[chosen, None, None] + step[:, None]).clamp(max=rows - 1)
        right = (plan.column[chosen, None, None] + step).clamp(max=columns - 1)
        cells = grid[plan.image[chosen, None, None], down, right]
        order.append(chosen)
        parts.append(resample(cells, "bicubic"))
    # The patches stand side by side in one image, as the convolution expects them: (1, 3, patch, T * patch).
    patches = torch.cat(parts)[torch.argsort(torch.cat(order))]
    strip = patches.permute(1, 2, 0, 3).reshape(1, 3, patch, -1)
    projected: Tensor = projection(strip)
    return projected[0, :, 0].T


def _additions(host: Host, module: nn.Module, plan: Plan, pixel_values: Tensor) -> list[Tensor] | None:
    """Return what the host adds to the sequence after each layer as packed (N, D) vectors."""
    between = host.between(module, pixel_values)
    if between is None:
        return None
    before, after = host.special(module)
    additions = []
    # (depth, L, D)
    for grid in between:
        end = len(grid) - after
        special = torch.cat([grid[:before], grid[end:]])
        packed = grid.new_zeros(len(plan), grid.shape[1]).index_copy(0, plan.slot, plan.average(grid[before:end]))
        additions.append(packed.index_copy(0, plan.special.flatten(), special.repeat(len(plan.special), 1)))
    return additions


def _key_bias(plan: Plan, like: Tensor) -> Tensor:
    """Return the logarithm of the cells each key covers, (N,); 0 for special tokens."""
    covered = plan.covered.prod(dim=1).to(like.dtype).log()
    return like.new_zeros(len(plan)).index_copy(0, plan.slot, covered)


def _with_mask(arguments: Arguments, name: str, bias: Tensor | None) -> Arguments:
    """Return the arguments with an attention mask by that name, (count, 1, 1, length), None without a (N,) bias."""
    if bias is None:
        return lambda slots: {**arguments(slots), name: None}
    return lambda slots: {**arguments(slots), name: bias[slots][:, None, None, :]}


@contextmanager
def _without_dropout(module: nn.Module) -> Iterator[None]:
    """Switch off the dropout of embeddings: it would be taken for a position."""
    active = [part for part in module.modules() if isinstance(part, nn.Dropout) and part.training and part.p > 0]
    for part in active:
        part.training = False
    try:
        yield
    finally:
        for part in active:
            part.training = True
