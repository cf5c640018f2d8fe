"""Layers of the public Co-DETR written out from its description, straight from tensors under their public names.

Plain formulas and loops, sharing nothing with the library: what a converted layer must reproduce.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tests.detect.test_roi import by_hand

State = Mapping[str, Tensor]
STRIDES = (4, 8, 16, 32, 64)


def linear(state: State, name: str, x: Tensor) -> Tensor:
    bias = state.get(f"{name}.bias")
    out = x @ state[f"{name}.weight"].T
    return out if bias is None else out + bias


def layer_norm(state: State, name: str, x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(heads, N, d) each."""
    return (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(len(x), heads, -1).transpose(0, 1)


# --- the EVA-02 backbone -------------------------------------------------------------------------------------------


def rotary(x: Tensor, rows: int, columns: int) -> Tensor:
    """(heads, rows * columns, d): the first half of d turns with the row, the second with the column."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(0, half, 2) / half)
    by_row = (torch.arange(rows) / rows * 16)[:, None] * frequency
    by_column = (torch.arange(columns) / columns * 16)[:, None] * frequency
    by_row, by_column = by_row.repeat_interleave(2, -1), by_column.repeat_interleave(2, -1)
    angle = torch.cat([by_row[:, None].expand(-1, columns, -1), by_column[None].expand(rows, -1, -1)], -1)
    angle = angle.reshape(rows * columns, -1)
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * angle.cos() + turned * angle.sin()


def backbone(state: State, pixels: Tensor, heads: int, window: int, global_blocks: Sequence[int]) -> Tensor:
    """A normalized (3, H, W) image to (D, rows, columns)."""
    x = functional.conv2d(
        pixels[None], state["backbone.patch_embed.proj.weight"], state["backbone.patch_embed.proj.bias"], stride=16
    )[0]
    rows, columns = x.shape[1:]
    table = state["backbone.pos_embed"][0, 1:]
    side = math.isqrt(len(table))
    table = table.T.reshape(1, -1, side, side)
    x = x + functional.interpolate(table, size=(rows, columns), mode="bicubic", align_corners=False)[0]
    x = x.permute(1, 2, 0)
    depth = sum(name.endswith(".norm1.weight") for name in state if name.startswith("backbone.blocks."))
    for number in range(depth):
        name = f"backbone.blocks.{number}"
        x = x + block_attention(state, name, x, heads, None if number in global_blocks else window)
        y = layer_norm(state, f"{name}.norm2", x, 1e-6)
        gated = functional.silu(linear(state, f"{name}.mlp.w1", y)) * linear(state, f"{name}.mlp.w2", y)
        x = x + linear(state, f"{name}.mlp.w3", layer_norm(state, f"{name}.mlp.ffn_ln", gated, 1e-6))
    return layer_norm(state, "backbone.out_norm", x, 1e-5).permute(2, 0, 1)


def block_attention(state: State, name: str, x: Tensor, heads: int, window: int | None) -> Tensor:
    """(rows, columns, D), whole or in windows that are filled up with zeros after the norm."""
    rows, columns = x.shape[:2]
    y = layer_norm(state, f"{name}.norm1", x, 1e-6)
    if window is None:
        return attended(state, name, y, heads)
    out = torch.zeros_like(x)
    for top in range(0, rows, window):
        for left in range(0, columns, window):
            inside = y[top : top + window, left : left + window]
            padded = torch.zeros(window, window, x.shape[2])
            padded[: inside.shape[0], : inside.shape[1]] = inside
            result = attended(state, name, padded, heads)
            out[top : top + window, left : left + window] = result[: inside.shape[0], : inside.shape[1]]
    return out


def attended(state: State, name: str, y: Tensor, heads: int) -> Tensor:
    rows, columns = y.shape[:2]
    flat = y.reshape(rows * columns, -1)
    q = linear(state, f"{name}.attn.q_proj", flat) + state[f"{name}.attn.q_bias"]
    k = linear(state, f"{name}.attn.k_proj", flat)
    v = linear(state, f"{name}.attn.v_proj", flat) + state[f"{name}.attn.v_bias"]
    q, k, v = (split_heads(part, heads) for part in (q, k, v))
    merged = softmax_attention(rotary(q, rows, columns), rotary(k, rows, columns), v).transpose(0, 1).flatten(1)
    return linear(state, f"{name}.attn.proj", merged).view(rows, columns, -1)


# --- the pyramid ---------------------------------------------------------------------------------------------------

STAGES = {
    "p2": ("up", 1, 2, "gelu", "up", 5, 6, "gelu", 8, 9, "gelu", 11, 12),
    "p3": ("up", 1, 2, "gelu", 4, 5, "gelu", 7, 8),
    "p4": (0, 1, "gelu", 3, 4),
    "p5": ("pool", 1, 2, "gelu", 4, 5),
    "p6": ("pool", 1, 2, "gelu", 4, 5, "gelu", 7, 8),
}


def pyramid_stage(state: State, stage: str, x: Tensor) -> Tensor:
    """(1, C, rows, columns) through one stage; its 3 x 3 convolution after pooling to 1/32 halves once more."""
    for step in STAGES[stage]:
        if step == "up":
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        elif step == "gelu":
            x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        elif step == "pool":
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        else:
            name = f"neck.{stage}.{step}"
            weight = state[f"{name}.weight"]
            if weight.ndim == 4:
                halves = stage == "p6" and step == 1
                x = functional.conv2d(x, weight, padding=weight.shape[-1] // 2, stride=2 if halves else 1)
            else:
                x = layer_norm(state, name, x.permute(0, 2, 3, 1), 1e-6).permute(0, 3, 1, 2)
    return x


# --- deformable layers ---------------------------------------------------------------------------------------------


def bilinear(plane: Tensor, x: float, y: float) -> Tensor:
    """(rows, columns, d) read at x, y in cells, the first center at a half; nothing outside."""
    x, y = x - 0.5, y - 0.5
    left, top = math.floor(x), math.floor(y)
    out = torch.zeros(plane.shape[2])
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, right in ((left, 1 - (x - left)), (left + 1, x - left)):
            if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
                out = out + plane[row, column] * down * right
    return out


def deformable(
    state: State,
    name: str,
    query: Tensor,
    reference: Tensor,
    memory: Tensor,
    shapes: Sequence[tuple[int, int]],
    heads: int,
) -> Tensor:
    """(Q, D) queries at (Q, 2) points or (Q, 4) boxes, as shares, over (S, D) cells."""
    levels = len(shapes)
    value = linear(state, f"{name}.value_proj", memory).view(len(memory), heads, -1)
    planes = [
        part.view(rows, columns, heads, -1)
        for part, (rows, columns) in zip(value.split([rows * columns for rows, columns in shapes]), shapes, strict=True)
    ]
    offsets = linear(state, f"{name}.sampling_offsets", query).view(len(query), heads, levels, -1, 2)
    points = offsets.shape[3]
    weights = linear(state, f"{name}.attention_weights", query).view(len(query), heads, -1).softmax(-1)
    weights = weights.view(len(query), heads, levels, points)
    out = torch.zeros(len(query), heads, value.shape[2])
    for q in range(len(query)):
        for head in range(heads):
            for level, (rows, columns) in enumerate(shapes):
                for point in range(points):
                    dx, dy = offsets[q, head, level, point].tolist()
                    x, y = reference[q, :2].tolist()
                    if reference.shape[1] == 2:
                        x, y = x + dx / columns, y + dy / rows
                    else:
                        wide, high = reference[q, 2:].tolist()
                        x, y = x + dx / points * wide * 0.5, y + dy / points * high * 0.5
                    read = bilinear(planes[level][:, :, head], x * columns, y * rows)
                    out[q, head] += weights[q, head, level, point] * read
    return linear(state, f"{name}.output_proj", out.flatten(1))


def mlp(state: State, name: str, x: Tensor) -> Tensor:
    hidden = linear(state, f"{name}.ffns.0.layers.0.0", x).clamp(min=0)
    return linear(state, f"{name}.ffns.0.layers.1", hidden)


def encoder_layer(
    state: State, number: int, x: Tensor, code: Tensor, centers: Tensor, shapes: Sequence[tuple[int, int]], heads: int
) -> Tensor:
    name = f"query_head.transformer.encoder.layers.{number}"
    read = deformable(state, f"{name}.attentions.0", x + code, centers, x, shapes, heads)
    x = layer_norm(state, f"{name}.norms.0", x + read, 1e-5)
    return layer_norm(state, f"{name}.norms.1", x + mlp(state, name, x), 1e-5)


def decoder_layer(
    state: State,
    number: int,
    x: Tensor,
    code: Tensor,
    boxes: Tensor,
    memory: Tensor,
    shapes: Sequence[tuple[int, int]],
    heads: int,
) -> Tensor:
    name = f"query_head.transformer.decoder.layers.{number}"
    own = f"{name}.attentions.0.attn"
    weights = state[f"{own}.in_proj_weight"].chunk(3)
    biases = state[f"{own}.in_proj_bias"].chunk(3)
    q, k, v = (
        split_heads(part @ weight.T + bias, heads)
        for part, weight, bias in zip((x + code, x + code, x), weights, biases, strict=True)
    )
    among = linear(state, f"{own}.out_proj", softmax_attention(q, k, v).transpose(0, 1).flatten(1))
    x = layer_norm(state, f"{name}.norms.0", x + among, 1e-5)
    read = deformable(state, f"{name}.attentions.1", x + code, boxes, memory, shapes, heads)
    x = layer_norm(state, f"{name}.norms.1", x + read, 1e-5)
    return layer_norm(state, f"{name}.norms.2", x + mlp(state, name, x), 1e-5)


def box_sine(boxes: Tensor, features: int) -> Tensor:
    """(Q, 4) boxes, center and size, to (Q, 4 * features): y, x, width, height in turn."""
    power = torch.arange(features) // 2 * 2 / features
    codes = []
    for coordinate in (1, 0, 2, 3):
        angle = boxes[:, coordinate, None] * 2 * math.pi / 10000**power
        code = torch.zeros(len(boxes), features)
        code[:, ::2], code[:, 1::2] = angle[:, ::2].sin(), angle[:, 1::2].cos()
        codes.append(code)
    return torch.cat(codes, -1)


def logit(share: Tensor) -> Tensor:
    return (share.clamp(min=1e-3) / (1 - share).clamp(min=1e-3)).log()


def box_branch(state: State, number: int, x: Tensor) -> Tensor:
    name = f"query_head.reg_branches.{number}"
    x = linear(state, f"{name}.0", x).clamp(min=0)
    return linear(state, f"{name}.4", linear(state, f"{name}.2", x).clamp(min=0))


def decode(
    state: State, boxes: Tensor, memory: Tensor, shapes: Sequence[tuple[int, int]], heads: int, layers: int
) -> tuple[Tensor, Tensor]:
    """The decoder from (Q, 4) first boxes: (Q, classes) logits and (Q, 4) boxes of the last layer."""
    x = state["query_head.transformer.query_embed.weight"]
    head = "query_head.transformer.decoder.ref_point_head"
    for number in range(layers):
        sine = box_sine(boxes, x.shape[1] // 2)
        code = linear(state, f"{head}.2", linear(state, f"{head}.0", sine).clamp(min=0))
        x = decoder_layer(state, number, x, code, boxes, memory, shapes, heads)
        normed = layer_norm(state, "query_head.transformer.decoder.norm", x, 1e-5)
        logits = linear(state, f"query_head.cls_branches.{number}", normed)
        final = (box_branch(state, number, normed) + logit(boxes)).sigmoid()
        boxes = (box_branch(state, number, x) + logit(boxes)).sigmoid()
    return logits, final


# --- auxiliary heads -----------------------------------------------------------------------------------------------


def conv_norm(state: State, name: str, x: Tensor) -> Tensor:
    """Convolution without bias, group norm in 32 groups, ReLU; (B, C, rows, columns)."""
    x = functional.conv2d(x, state[f"{name}.conv.weight"], padding=1)
    grouped = x.reshape(len(x), 32, -1)
    centred = grouped - grouped.mean(-1, keepdim=True)
    x = (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()).view_as(x)
    return (x * state[f"{name}.gn.weight"][:, None, None] + state[f"{name}.gn.bias"][:, None, None]).clamp(min=0)


def roi_head(state: State, maps: Sequence[Tensor], rois: Tensor) -> tuple[Tensor, Tensor]:
    name = "roi_head.0.bbox_head"
    grids = []
    for roi in rois:
        side = math.sqrt(float((roi[3] - roi[1]) * (roi[4] - roi[2])))
        level = min(max(math.floor(math.log2(side / 56 + 1e-6)), 0), len(STRIDES) - 1)
        grids.append(by_hand(maps[level], roi[None], (7, 7), 1 / STRIDES[level], None))
    x = torch.cat(grids)
    for number in range(4):
        x = conv_norm(state, f"{name}.shared_convs.{number}", x)
    vectors = linear(state, f"{name}.shared_fcs.0", x.flatten(1)).clamp(min=0)
    return linear(state, f"{name}.fc_cls", vectors), linear(state, f"{name}.fc_reg", vectors)


def atss_head(state: State, level: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """(1, C, rows, columns) of one level to class logits, deltas and centerness, each (1, k, rows, columns)."""
    name = "bbox_head.0"
    classes, boxes = (conv_norm(state, f"{name}.{kind}_convs.0", level) for kind in ("cls", "reg"))
    outs = [
        functional.conv2d(x, state[f"{name}.{last}.weight"], state[f"{name}.{last}.bias"], padding=1)
        for x, last in ((classes, "atss_cls"), (boxes, "atss_reg"), (boxes, "atss_centerness"))
    ]
    return outs[0], outs[1] * state[f"{name}.scales.{number}.scale"], outs[2]


def rpn_head(state: State, level: Tensor) -> tuple[Tensor, Tensor]:
    """(1, C, rows, columns) of one level to (1, 9, rows, columns) scores and (1, 36, rows, columns) deltas."""
    x = functional.conv2d(level, state["rpn_head.rpn_conv.weight"], state["rpn_head.rpn_conv.bias"], padding=1)
    x = x.clamp(min=0)
    scores = functional.conv2d(x, state["rpn_head.rpn_cls.weight"], state["rpn_head.rpn_cls.bias"])
    return scores, functional.conv2d(x, state["rpn_head.rpn_reg.weight"], state["rpn_head.rpn_reg.bias"])
