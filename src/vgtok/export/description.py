"""What an exported file says about itself, as the text properties an ONNX file carries. No torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from vgtok.detect.heads import Head
from vgtok.encode.config import EncoderConfig
from vgtok.errors import InputError
from vgtok.export.layout import Bucket
from vgtok.fields import check_fields
from vgtok.tokenize.geometry import Extent

FORMAT = "vgtok-onnx"
FORMAT_VERSION = "1"


@dataclass(frozen=True)
class Description:
    """One exported graph: a frame of `width` x `height` px, read as `tokens` tokens, or any number where `dynamic`.

    `model` is the name it was exported by, `names` are the classes, `buckets` the slots of its attention windows.
    `head` is the one whose candidates it returns, `atss_suppression` how those of the ATSS head are thinned out.
    """

    model: str
    names: tuple[str, ...]
    width: int
    height: int
    tokens: int
    dynamic: bool
    encoder: EncoderConfig
    buckets: tuple[Bucket, ...]
    head: Head
    licence: str
    atss_suppression: str = "hard"

    def __post_init__(self) -> None:
        check_fields(self, positive=("width", "height", "tokens"))
        for bucket in self.buckets:
            check_fields(bucket)

    @property
    def extent(self) -> Extent:
        """The valid area of the canvas."""
        return Extent(self.height, self.width)

    def to_properties(self) -> dict[str, str]:
        """Text by name; mean and std, on a scale of 0 to 255, are what the graph itself normalises with."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "model": self.model,
            "names": json.dumps(self.names),
            "canvas": f"{self.width}x{self.height}",
            "tokens": str(self.tokens),
            "dynamic": json.dumps(self.dynamic),
            "mean": json.dumps(self.encoder.mean),
            "std": json.dumps(self.encoder.std),
            "encoder": json.dumps(asdict(self.encoder)),
            "buckets": json.dumps([[bucket.windows, bucket.slots] for bucket in self.buckets]),
            "head": self.head,
            "licence": self.licence,
            "atss_suppression": self.atss_suppression,
        }

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], origin: str) -> "Description":
        """The description in a file's properties; `origin` is what errors call the file."""
        if properties.get("format") != FORMAT:
            raise InputError(f"{origin}: not written by 'vgtok export onnx', so nothing says how to feed it")
        if properties.get("version") != FORMAT_VERSION:
            raise InputError(
                f"{origin}: format {properties.get('version')}, but this release reads {FORMAT_VERSION}; export it anew"
            )
        try:
            width, _, height = properties["canvas"].partition("x")
            encoder: dict[str, Any] = json.loads(properties["encoder"])
            # JSON has lists where the configuration has tuples.
            settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in encoder.items()}
            return cls(
                model=properties["model"],
                names=tuple(_listed(properties["names"])),
                width=int(width),
                height=int(height),
                tokens=int(properties["tokens"]),
                dynamic=bool(json.loads(properties["dynamic"])),
                encoder=EncoderConfig(**settings),
                buckets=tuple(Bucket(*pair) for pair in _listed(properties["buckets"])),
                head=cast(Head, properties["head"]),
                licence=properties["licence"],
                atss_suppression=properties.get("atss_suppression", "hard"),
            )
        except InputError as error:
            raise InputError(f"{origin}: damaged description ({error}); export it anew") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(f"{origin}: damaged description ({error!r}); export it anew") from None


def _listed(text: str) -> list[Any]:
    values = json.loads(text)
    if not isinstance(values, list):
        raise TypeError(f"{type(values).__name__} instead of a list")
    return values
