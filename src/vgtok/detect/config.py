"""Detector configurations: one frozen dataclass, the presets by name, and the constants of suppression; no torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from vgtok.encode.config import EncoderConfig, configuration
from vgtok.errors import InputError, check_fields
from vgtok.names import VISDRONE

Head = Literal["query", "atss"]
"""The head that predicts: the query head, or the one-stage ATSS head trained beside it."""

Auxiliary = Literal["roi", "atss"]
"""Auxiliary heads, which help training; "roi" includes the region proposal head it reads."""

Suppression = Literal["hard", "soft"]
"""Suppression of the ATSS head: greedy NMS, or the soft-NMS of the released ViT-L configuration."""

Norm = Literal["group", "channel"]
"""Norm behind a convolution: over groups of channels at all positions, or over the channels of each position."""

MAX_DETECTIONS = 1000
"""Detections kept per image by default, as in the released models."""

QUERY_IOU = 0.8
"""Soft-NMS of the query head: IoU from which a box loses score to a better one of its class."""

ANCHOR_IOU = 0.6
"""NMS and soft-NMS of the ATSS head: IoU from which a box is dropped, or loses score, beside a better one."""

CANDIDATES = {"hard": 2000, "soft": 1000}
"""Most pairs of anchor and class the ATSS head takes from a level, by its suppression.

Soft is that of the released models. A crowd of small objects has more good pairs on the finest level than 1000.
"""

SOFT_ANCHORS = 100
"""Most boxes per image the ATSS head keeps after soft-NMS."""

MIN_SCORE = 1e-3
"""Soft-NMS drops boxes below this score."""

_STRIDES = (4, 8, 16, 32, 64)


@dataclass(frozen=True)
class DetectorConfig:
    """Architecture of one Co-DETR.

    | field               | meaning                                                                            |
    |---------------------|------------------------------------------------------------------------------------|
    | `encoder`           | name of a configuration in `vgtok.encode.config`                                   |
    | `names`             | class names, in label order                                                        |
    | `encoder_overrides` | fields of the encoder's configuration to change                                    |
    | `queries`           | object queries per image                                                           |
    | `strides`           | strides of the feature pyramid in pixels, consecutive powers of two, one per level |
    | `dim`               | channels of the pyramid and width of the transformer                               |
    | `heads`             | attention heads of the transformer                                                 |
    | `points`            | sampling points per head and level of deformable attention                         |
    | `hidden`            | hidden width of the transformer's MLPs                                             |
    | `encoder_layers`    | transformer encoder layers                                                         |
    | `decoder_layers`    | transformer decoder layers                                                         |
    | `denoising`         | number of denoising queries; the number of groups follows from it                  |
    | `label_noise`       | label noise of denoising queries                                                   |
    | `box_noise`         | box noise of denoising queries, in half sides                                      |
    | `auxiliary`         | auxiliary heads the model has                                                      |
    | `positives`         | most boxes an auxiliary head passes to the decoder as queries                      |
    | `atss_convs`        | convolutions of the ATSS head before its outputs                                   |
    | `atss_least_cells`  | smallest side, in cells, an object has when anchors are assigned to it             |
    | `roi_hidden`        | hidden width of the RoI head                                                       |
    | `roi_samples`       | proposals per image the RoI head is trained on                                     |
    | `proposals_before`  | proposals per level before NMS                                                     |
    | `proposals`         | proposals per image after NMS                                                      |
    | `atss_suppression`  | suppression of the ATSS head, "hard" or "soft"                                     |
    | `auxiliary_norm`    | norm of the ATSS head and of the level below the pyramid, "group" or "channel"     |
    """

    encoder: str
    names: tuple[str, ...]
    encoder_overrides: dict[str, Any] = field(default_factory=dict)
    queries: int = 1500
    strides: tuple[int, ...] = _STRIDES
    dim: int = 256
    heads: int = 8
    points: int = 4
    hidden: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    denoising: int = 300
    label_noise: float = 0.5
    box_noise: float = 0.4
    auxiliary: tuple[Auxiliary, ...] = ("roi", "atss")
    positives: int = 300
    atss_convs: int = 1
    atss_least_cells: float = 0.0
    roi_hidden: int = 1024
    roi_samples: int = 512
    proposals_before: int = 4000
    proposals: int = 1000
    atss_suppression: Suppression = "hard"
    auxiliary_norm: Norm = "group"

    def __post_init__(self) -> None:
        # JSON has lists where this has tuples.
        for name in ("names", "strides", "auxiliary"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(self, positive=("queries", "dim", "heads", "points", "hidden", "decoder_layers"))
        overrides = {name: tuple(v) if isinstance(v, list) else v for name, v in self.encoder_overrides.items()}
        object.__setattr__(self, "encoder_overrides", overrides)
        if not self.names:
            raise InputError("names: a detector needs at least one class")
        if self.dim % self.heads or self.dim % 4:
            raise InputError(f"dim: {self.dim} is not a multiple of {self.heads} heads and of 4 coordinates")
        doubling = all(after == 2 * before for before, after in pairwise(self.strides))
        if not self.strides or not doubling or self.strides[0] not in _STRIDES or self.strides[-1] not in _STRIDES:
            raise InputError(f"strides: {self.strides} are not consecutive powers of two from 4 to 64")
        if self.atss_suppression not in get_args(Suppression):
            raise InputError(f"atss_suppression: '{self.atss_suppression}' is not one of hard, soft")
        if self.auxiliary_norm not in get_args(Norm):
            raise InputError(f"auxiliary_norm: '{self.auxiliary_norm}' is not one of group, channel")
        if unknown := set(self.auxiliary) - set(get_args(Auxiliary)):
            raise InputError(f"auxiliary: {', '.join(sorted(unknown))} is not one of {', '.join(get_args(Auxiliary))}")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.names)

    @property
    def levels(self) -> int:
        """Number of levels of the feature pyramid."""
        return len(self.strides)

    @property
    def auxiliary_weight(self) -> float:
        """Weight of the losses of auxiliary heads: 2 x number of decoder layers."""
        return 2.0 * self.decoder_layers

    def encoder_config(self) -> EncoderConfig:
        """Return the encoder's configuration with the overrides applied."""
        return configuration(self.encoder, **self.encoder_overrides)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DetectorConfig":
        """Build a configuration from the values of a JSON file; raise on unknown fields."""
        if not isinstance(values, Mapping):
            raise InputError("config: must map the fields of a detector to their values")
        if unknown := values.keys() - {item.name for item in fields(cls)}:
            raise InputError(f"config: unknown fields {', '.join(sorted(unknown))}")
        if lacking := {"encoder", "names"} - values.keys():
            raise InputError(f"config: lacks {', '.join(sorted(lacking))}")
        return cls(**values)


DETECTORS: dict[str, DetectorConfig] = {
    "co-detr-eva02-large": DetectorConfig("eva02-large", VISDRONE),
    "co-detr-eva02-base": DetectorConfig("eva02-base", VISDRONE),
    "co-detr-eva02-small": DetectorConfig("eva02-small", VISDRONE, queries=900, hidden=1024),
    "co-detr-vit-tiny": DetectorConfig(
        "vit-tiny",
        VISDRONE,
        # Windows of 16 cells and no global block: what attention sees in a crop is then what it sees in a canvas, and
        # as many cells as the encoder was pretrained on. The class token belongs to no window.
        {"window": 16, "global_blocks": (), "prefix": 0, "spread": 96},
        queries=900,
        strides=(8, 16, 32),
        dim=96,
        heads=4,
        points=2,
        hidden=384,
        encoder_layers=2,
        decoder_layers=3,
        denoising=100,
        positives=100,
        roi_hidden=256,
        roi_samples=64,
        proposals_before=1000,
        proposals=300,
        # A group norm over a canvas, most of it empty, is another than over a crop around objects.
        auxiliary_norm="channel",
    ),
}
"""Every detector by name."""


def detector_configuration(name: str, **changes: Any) -> DetectorConfig:
    """Return the configuration called `name`, with fields changed by keyword."""
    if name not in DETECTORS:
        raise InputError(f"detector: '{name}' is not one of {', '.join(DETECTORS)}")
    return replace(DETECTORS[name], **changes)
