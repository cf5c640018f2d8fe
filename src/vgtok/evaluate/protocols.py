"""The rules a benchmark is scored by, as data: how many detections count, what is ignored, which sizes are told apart.

VisDrone and AI-TOD-v2 come with the rules of their papers, so that neither COCO's cap of 100 nor a forgotten ignored
region can slip in; plain COCO takes any cap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vgtok.data.dataset import Role
from vgtok.errors import InputError

EVERYTHING = (0.0, 1e10)
"""The area range of every box, in square pixels, as the COCO tools have it."""

_COCO_BANDS = {"APS": (0.0, 32.0**2), "APM": (32.0**2, 96.0**2), "APL": (96.0**2, EVERYTHING[1])}
_AITOD_BANDS = {
    "APvt": (0.0, 8.0**2),
    "APt": (8.0**2, 16.0**2),
    "APs": (16.0**2, 32.0**2),
    "APm": (32.0**2, EVERYTHING[1]),
}


@dataclass(frozen=True)
class Protocol:
    """One way to score.

    `max_detections` is the most detections of one class that count in one image, by score. `bands` maps the name of an
    AP to its range of box areas; like the COCO tools, a box on the edge of two bands is scored in both.
    `region_roles` are the annotations whose union is ignored. `drops_boxes` takes scored boxes out of that union too,
    and with them every detection there; otherwise a detection that finds a scored box (IoU 0.5 or more) stays.
    `class_band` names the band whose AP is also told class by class.
    """

    name: str
    title: str
    max_detections: int
    bands: Mapping[str, tuple[float, float]]
    region_roles: frozenset[Role] = frozenset()
    drops_boxes: bool = False
    class_band: str | None = None


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "visdrone",
            "VisDrone: COCO AP; detections at least half in ignored regions or others count neither way",
            500,
            _COCO_BANDS,
            frozenset({Role.REGION, Role.OTHERS, Role.CROWD}),
        ),
        Protocol(
            "visdrone-toolkit",
            "VisDrone as its toolkit filters: COCO AP; boxes and detections at least half in ignored regions dropped",
            500,
            _COCO_BANDS,
            frozenset({Role.REGION}),
            drops_boxes=True,
        ),
        Protocol("aitodv2", "AI-TOD-v2: COCO AP in its four size bands", 1500, _AITOD_BANDS, class_band="APvt"),
        Protocol("coco", "COCO AP", 100, _COCO_BANDS),
    )
}
"""Every protocol by name."""


def protocol_for(name: str | None, data: str, max_detections: int | None) -> Protocol:
    """The protocol of that name, or the one a data set is scored by; only plain COCO takes another cap."""
    chosen = name or (data if data in PROTOCOLS else "coco")
    if chosen not in PROTOCOLS:
        raise InputError(f"--protocol: '{chosen}' is not a protocol; there are {', '.join(PROTOCOLS)}")
    protocol = PROTOCOLS[chosen]
    if max_detections is None or max_detections == protocol.max_detections:
        return protocol
    if chosen != "coco":
        raise InputError(
            f"--max-detections: {chosen} fixes its cap at {protocol.max_detections}; --protocol coco takes any"
        )
    if max_detections < 1:
        raise InputError(f"--max-detections: {max_detections} is not a number of detections, 1 or more")
    return replace(protocol, max_detections=max_detections)
