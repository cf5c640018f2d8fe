"""The public model on a frame that is no multiple of 32 px, from pixels to boxes, by plain formulas and loops.

The frame is padded with zeros; backbone and pyramid run on all of it. Behind them a mask per level hides what lies
beyond the image, and every place is a share of the image.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tests.detect import public_oracle as public
from tests.detect.public_oracle import STRIDES, State, layer_norm, linear
from tests.test_overlap import softened

HEADS = 4
Found = tuple[Tensor, Tensor, Tensor]


def feature_levels(state: State, pixels: Tensor, window: int) -> list[Tensor]:
    """A normalized (3, H, W) image, padded, to the (C, rows, columns) levels of the pyramid."""
    height, width = pixels.shape[1:]
    padded = torch.zeros(3, math.ceil(height / 32) * 32, math.ceil(width / 32) * 32)
    padded[:, :height, :width] = pixels
    features = public.backbone(state, padded, heads=3, window=window, global_blocks=(1,))
    return [public.pyramid_stage(state, stage, features[None])[0] for stage in public.STAGES]


def level_masks(levels: Sequence[Tensor], image: tuple[int, int]) -> list[Tensor]:
    """(rows, columns) of every level, true beyond the image."""
    padded = torch.ones(levels[0].shape[1] * 4, levels[0].shape[2] * 4)
    padded[: image[0], : image[1]] = 0
    return [functional.interpolate(padded[None, None], size=level.shape[1:])[0, 0].bool() for level in levels]


def masked_sine(mask: Tensor, features: int) -> Tensor:
    """(rows * columns, 2 * features) of one level: valid cells are counted, row by row and column by column."""
    real = (~mask).float()
    down, right = real.cumsum(0), real.cumsum(1)
    down, right = down / (down[-1:] + 1e-6) * 2 * math.pi, right / (right[:, -1:] + 1e-6) * 2 * math.pi
    power = 20.0 ** (torch.arange(features) // 2 * 2 / features)
    codes = []
    for place in (down, right):
        angle = place[..., None] / power
        code = torch.zeros_like(angle)
        code[..., ::2], code[..., 1::2] = angle[..., ::2].sin(), angle[..., 1::2].cos()
        codes.append(code)
    return torch.cat(codes, -1).flatten(0, 1)


def deformable(
    state: State, name: str, query: Tensor, places: Tensor, memory: Tensor, masks: Sequence[Tensor]
) -> Tensor:
    """(Q, D) queries at (Q, levels, 2 or 4) places, as shares of each map, over (S, D) cells, some hidden."""
    shapes = [tuple(mask.shape) for mask in masks]
    value = linear(state, f"{name}.value_proj", memory)
    value[torch.cat([mask.flatten() for mask in masks])] = 0
    planes = [
        part.view(*shape, HEADS, -1)
        for part, shape in zip(value.split([rows * columns for rows, columns in shapes]), shapes, strict=True)
    ]
    offsets = linear(state, f"{name}.sampling_offsets", query).view(len(query), HEADS, len(shapes), -1, 2)
    points = offsets.shape[3]
    weights = linear(state, f"{name}.attention_weights", query).view(len(query), HEADS, -1).softmax(-1)
    weights = weights.view(len(query), HEADS, len(shapes), points)
    out = torch.zeros(len(query), HEADS, value.shape[1] // HEADS)
    for q in range(len(query)):
        for head in range(HEADS):
            for level, (rows, columns) in enumerate(shapes):
                for point in range(points):
                    dx, dy = offsets[q, head, level, point].tolist()
                    x, y = places[q, level, :2].tolist()
                    if places.shape[2] == 2:
                        x, y = x + dx / columns, y + dy / rows
                    else:
                        wide, high = places[q, level, 2:].tolist()
                        x, y = x + dx / points * wide * 0.5, y + dy / points * high * 0.5
                    read = public.bilinear(planes[level][:, :, head], x * columns, y * rows)
                    out[q, head] += weights[q, head, level, point] * read
    return linear(state, f"{name}.output_proj", out.flatten(1))


def encoded(state: State, levels: Sequence[Tensor], masks: Sequence[Tensor], layers: int) -> Tensor:
    """(S, D) memory."""
    dim = levels[0].shape[0]
    x = torch.cat([level.flatten(1).T for level in levels])
    embeds = state["query_head.transformer.level_embeds"]
    code = torch.cat([masked_sine(mask, dim // 2) + embed for mask, embed in zip(masks, embeds, strict=True)])
    filled = shares(masks)
    places = torch.cat([centers(mask)[:, None] * filled for mask in masks])
    for number in range(layers):
        name = f"query_head.transformer.encoder.layers.{number}"
        x = layer_norm(
            state, f"{name}.norms.0", x + deformable(state, f"{name}.attentions.0", x + code, places, x, masks), 1e-5
        )
        x = layer_norm(state, f"{name}.norms.1", x + public.mlp(state, name, x), 1e-5)
    return x


def shares(masks: Sequence[Tensor]) -> Tensor:
    """(levels, 2) share of every map the image fills, x before y."""
    return torch.stack([torch.stack([(~mask[0]).float().mean(), (~mask[:, 0]).float().mean()]) for mask in masks])


def centers(mask: Tensor) -> Tensor:
    """(rows * columns, 2) centers of cells as shares of the image."""
    high, wide = int((~mask[:, 0]).sum()), int((~mask[0]).sum())
    y, x = (torch.arange(mask.shape[0]) + 0.5) / high, (torch.arange(mask.shape[1]) + 0.5) / wide
    return torch.cartesian_prod(y, x).flip(-1)


def query_boxes(
    state: State, memory: Tensor, masks: Sequence[Tensor], layers: int, queries: int
) -> tuple[Tensor, Tensor]:
    """(Q, classes) logits and (Q, 4) boxes, as shares of the image, of the last decoder layer."""
    first = torch.cat(
        [
            torch.cat([centers(mask), torch.full((mask.numel(), 2), 0.05 * 2**level)], 1)
            for level, mask in enumerate(masks)
        ]
    )
    beyond = torch.cat([mask.flatten() for mask in masks])
    valid = ((first > 0.01) & (first < 0.99)).all(1) & ~beyond
    start = (first / (1 - first)).log()
    start[~valid] = math.inf
    output = layer_norm(
        state,
        "query_head.transformer.enc_output_norm",
        linear(state, "query_head.transformer.enc_output", memory * valid[:, None]),
        1e-5,
    )
    best = linear(state, f"query_head.cls_branches.{layers}", output).amax(1).topk(queries).indices
    boxes = (public.box_branch(state, layers, output) + start)[best].sigmoid()
    x = state["query_head.transformer.query_embed.weight"]
    head = "query_head.transformer.decoder.ref_point_head"
    filled = shares(masks).repeat(1, 2)
    for number in range(layers):
        name = f"query_head.transformer.decoder.layers.{number}"
        code = linear(
            state, f"{head}.2", linear(state, f"{head}.0", public.box_sine(boxes, x.shape[1] // 2)).clamp(min=0)
        )
        own = f"{name}.attentions.0.attn"
        q, k, v = (
            public.split_heads(part @ weight.T + bias, HEADS)
            for part, weight, bias in zip(
                (x + code, x + code, x),
                state[f"{own}.in_proj_weight"].chunk(3),
                state[f"{own}.in_proj_bias"].chunk(3),
                strict=True,
            )
        )
        among = linear(state, f"{own}.out_proj", public.softmax_attention(q, k, v).transpose(0, 1).flatten(1))
        x = layer_norm(state, f"{name}.norms.0", x + among, 1e-5)
        read = deformable(state, f"{name}.attentions.1", x + code, boxes[:, None] * filled, memory, masks)
        x = layer_norm(state, f"{name}.norms.1", x + read, 1e-5)
        x = layer_norm(state, f"{name}.norms.2", x + public.mlp(state, name, x), 1e-5)
        normed = layer_norm(state, "query_head.transformer.decoder.norm", x, 1e-5)
        logits = linear(state, f"query_head.cls_branches.{number}", normed)
        final = (public.box_branch(state, number, normed) + public.logit(boxes)).sigmoid()
        boxes = (public.box_branch(state, number, x) + public.logit(boxes)).sigmoid()
    return logits, final


def query_detections(logits: Tensor, boxes: Tensor, image: tuple[int, int]) -> Found:
    """The pairs of query and class, as many as there are queries, softly suppressed in each class."""
    scores, order = logits.sigmoid().flatten().topk(len(logits))
    chosen, labels = boxes[order // logits.shape[1]], order % logits.shape[1]
    high, wide = image
    corners = torch.stack(
        [
            ((chosen[:, 0] - chosen[:, 2] / 2) * wide).clamp(0, wide),
            ((chosen[:, 1] - chosen[:, 3] / 2) * high).clamp(0, high),
            ((chosen[:, 0] + chosen[:, 2] / 2) * wide).clamp(0, wide),
            ((chosen[:, 1] + chosen[:, 3] / 2) * high).clamp(0, high),
        ],
        1,
    )
    return suppressed(corners, scores, labels, 0.8)


def atss_detections(state: State, memory: Tensor, masks: Sequence[Tensor], image: tuple[int, int]) -> Found:
    """Per level the 1000 best pairs of anchor and class, then centerness, then soft suppression: at most 100."""
    parts = memory.split([mask.numel() for mask in masks])
    maps = [part.T.reshape(1, -1, *mask.shape) for part, mask in zip(parts, masks, strict=True)]
    halved = functional.conv2d(
        maps[-1], state["query_head.downsample.0.weight"], state["query_head.downsample.0.bias"], stride=2, padding=1
    )
    grouped = halved.reshape(32, -1)
    grouped = (grouped - grouped.mean(1, keepdim=True)) / (grouped.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    scale, shift = (state[f"query_head.downsample.1.{kind}"][:, None, None] for kind in ("weight", "bias"))
    maps.append(grouped.view_as(halved) * scale + shift)
    high, wide = image
    boxes, scores, labels = [], [], []
    for number, (level, stride) in enumerate(zip(maps, (*STRIDES, 128), strict=True)):
        classes, deltas, centerness = (part[0].flatten(1).T for part in public.atss_head(state, level, number))
        flat = classes.sigmoid().flatten()
        value, order = flat.topk(min(1000, len(flat)))
        for score, pair in zip(value.tolist(), order.tolist(), strict=True):
            cell, label = divmod(pair, classes.shape[1])
            row, column = divmod(cell, level.shape[3])
            dx, dy, dw, dh = (deltas[cell] * torch.tensor([0.1, 0.1, 0.2, 0.2])).tolist()
            side = 8 * stride
            x, y = column * stride + dx * side, row * stride + dy * side
            limit = math.log(1000 / 16)
            w, h = (side * math.exp(min(max(grown, -limit), limit)) for grown in (dw, dh))
            corners = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
            boxes.append([min(max(at, 0), end) for at, end in zip(corners, (wide, high, wide, high), strict=True)])
            scores.append(score * float(centerness[cell].sigmoid()))
            labels.append(label)
    found = suppressed(torch.tensor(boxes), torch.tensor(scores), torch.tensor(labels), 0.6)
    return found[0][:100], found[1][:100], found[2][:100]


def suppressed(boxes: Tensor, scores: Tensor, labels: Tensor, threshold: float) -> Found:
    """Linear soft-NMS over boxes moved apart by class."""
    apart = boxes + labels[:, None] * (boxes.max() + 1)
    kept, values = softened(apart, scores, threshold, 1e-3)
    return boxes[kept], torch.tensor(values), labels[kept]
