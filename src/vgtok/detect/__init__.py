"""Feature map to boxes: a Co-DETR in plain PyTorch, and the detector that joins it to tokenizer and encoder."""

from importlib.util import find_spec

from vgtok.errors import VGTokError

if find_spec("torch") is None or find_spec("scipy") is None:
    raise VGTokError("vgtok.detect: torch and scipy are needed; pip install 'vgtok[detect]'")
