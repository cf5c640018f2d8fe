"""Tokens and pixels to a dense feature map: packed vision transformers of two families, EVA-02 and plain ViT."""

from importlib.util import find_spec

from vgtok.errors import VGTokError

if find_spec("torch") is None:
    raise VGTokError("vgtok.encode: torch is not installed; pip install 'vgtok[detect]'")
