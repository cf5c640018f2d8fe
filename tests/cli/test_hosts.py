"""`vgtok hosts`: every family with what it supports."""

import json

from tests.command_line import Run
from vgtok.hosts import all_hosts


def test_every_family_is_listed(vgtok: Run) -> None:
    code, text, error = vgtok("hosts", "--json")
    assert code == 0, error
    listed = json.loads(text)
    assert [row["family"] for row in listed["hosts"]] == [host.name for host in all_hosts()]
    rf_detr = next(row for row in listed["hosts"] if row["family"] == "RF-DETR")
    assert rf_detr["windows"]
    assert "RfDetrForObjectDetection" in rf_detr["detectors"]
    assert {row["class"] for row in listed["refused"]} >= {"SamVisionEncoder", "VitDetBackbone"}
    code, text, error = vgtok("hosts")
    assert code == 0, error
    assert all(host.name in text for host in all_hosts())
