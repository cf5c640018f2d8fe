"""Random controls: the same again for an image, other for another, and counts stay."""

from vgtok import Tokenizer
from vgtok.data.dataset import Dataset
from vgtok.data.synthetic import render_scene
from vgtok.study.paper import FUSED_GATED, GATED
from vgtok.study.tokenizers import SETTINGS, RandomGate, RandomScore, partitions
from vgtok.tokenize.canvas import fit_canvas


def test_the_random_partition_is_its_own_in_every_image_and_the_same_again(dataset: Dataset) -> None:
    tokenizer = Tokenizer(budget=0.4, rank=0.0, scorer=RandomScore(), canvas=(192, 128))
    one, again, other = (tokenizer(dataset.images[index]) for index in (0, 0, 1))
    assert one.sizes.tolist() == again.sizes.tolist()
    assert one.sizes.tolist() != other.sizes.tolist()
    assert abs(one.retained - 0.4) < 0.02


def test_the_random_gate_leaves_the_count_alone() -> None:
    image = render_scene(seed=3, width=512, height=320).pixels
    counts = {
        len(Tokenizer(percentile=60, gate=gate, canvas="native")(image)) for gate in ("lambda_min", RandomGate(4))
    }
    assert len(counts) == 1


def test_partitions_of_one_canvas_equal_those_of_each_tokenizer() -> None:
    canvas = fit_canvas(render_scene(seed=3, width=512, height=320).pixels, "native")
    tokenizers = [Tokenizer(budget=0.4, canvas="native", **SETTINGS[name]) for name in SETTINGS]
    for tokenizer, tokens in zip(tokenizers, partitions(canvas, tokenizers), strict=True):
        assert tokens.sizes.tolist() == tokenizer.partition(canvas).sizes.tolist()
    assert SETTINGS[FUSED_GATED] == {**SETTINGS[GATED], "scorer": "fused"}
