"""Every named tokenizer partitions a frame at its budget, each in its own way."""

import pytest

from vgtok.data.synthetic import render_scene
from vgtok.errors import InputError
from vgtok.tokenize.tokenizer import PRESETS, Tokenizer, preset


def test_each_preset_is_a_tokenizer_of_its_own() -> None:
    image = render_scene(7, 512, 384).pixels
    read = {name: Tokenizer(budget=0.4, canvas="native", **preset(name))(image) for name in PRESETS}
    for tokens in read.values():
        tokens.validate()
        assert tokens.retained == pytest.approx(0.4, abs=0.005)
    assert len({tokens.boxes.tobytes() for tokens in read.values()}) == len(PRESETS)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"tokenizer: 'tophat' is not one of single-pass, top-hat"):
        preset("tophat")
