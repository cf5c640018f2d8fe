"""The tokenizer: what it accepts, what it refuses, the same partition on every path; presets by name."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vgtok
from tests.devices import DEVICES
from vgtok import BudgetError, InputError, RetentionTable, Tokenizer
from vgtok.data.dataset import images_in
from vgtok.data.synthetic import render_scene
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.geometry import CanvasPixels, Pyramid, nest
from vgtok.tokenize.retention import RetentionCurve
from vgtok.tokenize.scores import SCORES, top_hat
from vgtok.tokenize.split import GATES, Structure
from vgtok.tokenize.tokenizer import PRESETS, preset


def random_image(height: int, width: int, seed: int) -> np.ndarray:
    """Blobs of a few sizes on noise, some of it flat: ties, edges and texture in one picture."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    image = np.ascontiguousarray(np.kron(small, np.ones((8, 8, 1), dtype=np.uint8))[:height, :width])
    image[: height // 3] = 100
    return image


@given(
    height=st.one_of(st.integers(1, 200), st.integers(201, 3200)),
    width=st.one_of(st.integers(1, 200), st.integers(201, 3200)),
    seed=st.integers(0, 1000),
    scorer=st.sampled_from([name for name in SCORES if name != "upsample_mse"]),
    gate=st.sampled_from(list(GATES)),
    rank=st.sampled_from((0.0, 0.2, 0.6)),
    aim=st.one_of(
        st.floats(0.0625, 1.0).map(lambda b: {"budget": b}), st.floats(0, 100).map(lambda p: {"percentile": p})
    ),
)
@settings(max_examples=60, deadline=None)
def test_any_frame_and_setting_is_tiled_exactly_once(
    height: int, width: int, seed: int, scorer: str, gate: str, rank: float, aim: dict[str, float]
) -> None:
    # Slow scores and gates see small frames only; the shipped ones see everything.
    if (scorer, gate) != ("tophat", "lambda_min"):
        height, width = min(height, 300), min(width, 300)
    tokens = Tokenizer(**aim, rank=rank, scorer=scorer, gate=gate, canvas="native")(random_image(height, width, seed))
    tokens.validate()
    if "budget" in aim:
        assert abs(len(tokens) - np.clip(aim["budget"] * tokens.dense, tokens.extent.roots, tokens.dense)) <= 2


@given(st.integers(1, 260), st.integers(1, 260), st.integers(0, 1000), st.floats(0, 100))
@settings(max_examples=30, deadline=None)
def test_single_pass_tiles_every_frame(height: int, width: int, seed: int, percentile: float) -> None:
    tokens = Tokenizer(percentile=percentile, splitter="single_pass", canvas="native")(
        random_image(height, width, seed)
    )
    tokens.validate()


@given(
    st.integers(1, 220),
    st.integers(1, 220),
    st.integers(0, 1000),
    st.sampled_from(
        (
            Tokenizer(budget=0.4, canvas="native"),
            Tokenizer(percentile=60, canvas="native"),
            Tokenizer(budget=0.7, rank=0.0, canvas="native"),
            Tokenizer(percentile=50, splitter="single_pass", canvas="native"),
            Tokenizer(budget=0.4, scorer="compact", rank=0.0, canvas="native"),
            Tokenizer(percentile=60, scorer="compact", canvas="native"),
            Tokenizer(budget=0.4, scorer="fused", canvas="native"),
            Tokenizer(budget=0.4, gate="surround", canvas="native"),
        )
    ),
)
@settings(max_examples=60, deadline=None)
def test_a_batch_of_tensors_gives_the_same_partitions(height: int, width: int, seed: int, tokenizer: Tokenizer) -> None:
    images = np.stack([random_image(height, width, seed), random_image(height, width, seed + 1)])
    batch = tokenizer.batch(torch.from_numpy(images).permute(0, 3, 1, 2))
    for image, tokens in zip(images, batch, strict=True):
        np.testing.assert_array_equal(tokens.boxes, tokenizer(image).boxes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["top-hat+gate", "compact"])
def test_a_full_frame_is_the_same_from_tensors_and_on_any_number_of_threads(device: str, name: str) -> None:
    image = random_image(1152, 2048, 3)
    tokenizer = Tokenizer(budget=0.4, **preset(name))
    expected = tokenizer(image).boxes
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].to(device)
    np.testing.assert_array_equal(tokenizer.batch(pixels)[0].boxes, expected)
    before = cv2.getNumThreads()
    try:
        for threads in (1, 2, 5):
            cv2.setNumThreads(threads)
            np.testing.assert_array_equal(tokenizer(image).boxes, expected)
    finally:
        cv2.setNumThreads(before)


@pytest.mark.parametrize("images", [torch.zeros(3, 8, 8), torch.zeros(1, 3, 8, 8), torch.zeros(1, 1, 8, 8).byte()])
def test_a_batch_of_another_kind_is_refused(images: torch.Tensor) -> None:
    with pytest.raises(InputError, match="uint8"):
        Tokenizer(budget=0.4).batch(images)


def test_padding_never_changes_a_partition() -> None:
    """Whatever lies in the padding of the canvas, tokens are those of the valid pixels."""
    canvas = fit_canvas(random_image(100, 150, 4), "native")
    expected = Tokenizer(percentile=50).partition(canvas).boxes
    canvas.pixels[100:] = 255
    canvas.pixels[:, 150:] = np.random.default_rng(0).integers(0, 256, canvas.pixels[:, 150:].shape)
    np.testing.assert_array_equal(Tokenizer(percentile=50).partition(canvas).boxes, expected)


def test_flat_frames_get_their_budget_too() -> None:
    flat = np.full((1152, 2048, 3), 128, dtype=np.uint8)
    for budget in (0.1, 0.4, 0.9):
        tokens = Tokenizer(budget=budget)(flat)
        tokens.validate()
        assert abs(len(tokens) - budget * 9216) <= 2
    assert len(Tokenizer(percentile=50)(flat)) == 576


def test_a_scorer_and_a_gate_of_ones_own() -> None:
    def blue(frame: object) -> Pyramid:
        fine = np.zeros(frame.extent.grid_shape(16), dtype=np.float32)  # type: ignore[attr-defined]
        fine[:2, :2] = 1
        return nest(fine)

    def none_stops(frame: object) -> Structure:
        return Structure(*nest(np.ones(frame.extent.grid_shape(16), dtype=np.float32))[1:])  # type: ignore[attr-defined]

    tokens = Tokenizer(percentile=90, rank=0.0, scorer=blue, gate=none_stops, canvas="native")(
        np.zeros((128, 128, 3), np.uint8)
    )
    assert tokens.boxes[:4].tolist() == [[0, 0, 16, 16], [16, 0, 32, 16], [0, 16, 16, 32], [16, 16, 32, 32]]
    assert len(tokens) == 4 + 3 + 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either budget"),
        ({"budget": 0.4, "percentile": 50}, "give either budget"),
        ({"budget": 0.0}, "budget: 0.0 is outside 0.0625 to 1"),
        ({"budget": 1.5}, "budget: 1.5 is outside"),
        ({"budget": 0.2, "splitter": "single_pass"}, "budget: 0.2 is outside 0.25 to 1"),
        ({"percentile": -1}, "percentile: -1"),
        ({"budget": 0.4, "rank": 1.0}, "rank: 1.0"),
        ({"budget": 0.4, "scorer": "magic"}, "scorer: 'magic' is not one of tophat"),
        ({"budget": 0.4, "gate": "magic"}, "gate: 'magic' is not one of lambda_min"),
        ({"budget": 0.4, "splitter": "magic"}, "splitter: 'magic'"),
        ({"budget": 0.4, "splitter": "single_pass_strict"}, "holds no exact budget"),
        ({"budget": 0.4, "padding": "black"}, "padding: 'black' is not one of empty, reflect"),
        ({"budget": 0.4, "scorer": "upsample_mse"}, "cannot hold it to a budget"),
    ],
)
def test_impossible_settings_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tokenizer(**arguments)  # type: ignore[arg-type]


def test_calibrated_takes_the_percentile_from_a_table() -> None:
    shipped = Tokenizer.calibrated("visdrone", budget=0.40)
    assert shipped.percentile == pytest.approx(74.82, abs=0.1)
    assert Tokenizer.calibrated("visdrone", budget=0.40, rank=0.0).percentile == pytest.approx(81.88, abs=0.1)
    assert Tokenizer.calibrated("visdrone", budget=0.40, scorer="fused").scorer == "fused"
    with pytest.raises(
        BudgetError, match=r"budget: 0.8 cannot be reached .* rank 0.3; its percentiles reach .* to 0.7"
    ):
        Tokenizer.calibrated("visdrone", budget=0.80, rank=0.30)
    with pytest.raises(InputError, match="no curve for scorer 'entropy'"):
        Tokenizer.calibrated("visdrone", budget=0.5, scorer="entropy")
    with pytest.raises(InputError, match="neither a file nor a shipped table"):
        Tokenizer.calibrated("nowhere", budget=0.5)
    own = RetentionTable("own", {}, (RetentionCurve("tophat", 0.2, (0.0, 100.0), (0.8, 0.0625)),))
    assert Tokenizer.calibrated(own, budget=0.8).percentile == 0.0


def test_imports_stay_light_and_nothing_here_needs_torch(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "frame.png"), random_image(200, 300, 0))
    program = (
        "import sys, time; sys.modules['torch'] = None; start = time.perf_counter(); import vgtok;"
        "took = time.perf_counter() - start;"
        f"tokens = vgtok.Tokenizer(budget=0.4)(r'{tmp_path / 'frame.png'}'); tokens.validate();"
        "assert took < 0.3, took; assert 'cv2' in sys.modules; print(len(tokens))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_names_of_the_package_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = vgtok.Nonsense  # type: ignore[attr-defined]
    assert "Tokenizer" in dir(vgtok)


def test_the_papers_readings_give_the_counts_of_its_figure(visdrone: Path) -> None:
    path = visdrone / "images" / "0000244_04400_d_0000010.jpg"
    assert len(Tokenizer.paper(40, canvas="native", rank=0)(path)) == 1842
    assert len(Tokenizer.paper(40, canvas="native")(path)) == 1500
    # The padding of 540 rows to 576 counts.
    assert Tokenizer.paper(40, canvas="native")(path).dense == 60 * 36


def test_the_papers_rule_keeps_what_it_prints_of_single_pass(visdrone: Path) -> None:
    frames = images_in(visdrone / "images")[::14]
    for percentile, printed in ((10, 0.928), (40, 0.700), (80, 0.400)):
        tokenizer = Tokenizer.paper(percentile, splitter="single_pass_strict")
        assert np.mean([tokenizer(path).retained for path in frames]) == pytest.approx(printed, abs=0.003)
    assert Tokenizer.calibrated("visdrone", 0.4, splitter="single_pass_strict").percentile == pytest.approx(80)


@pytest.mark.parametrize(("percentile", "rank", "retained"), [(81.88, 0.0, 0.4), (74.82, 0.2, 0.4), (92.76, 0.2, 0.2)])
def test_the_papers_percentiles_on_real_frames(visdrone: Path, percentile: float, rank: float, retained: float) -> None:
    frames = images_in(visdrone / "images")[::14]
    tokenizer = Tokenizer(percentile=percentile, rank=rank)
    kept = np.mean([tokenizer(path).retained for path in frames])
    # Forty of 548 frames: their own mean lies within half a point of the whole set's.
    assert kept == pytest.approx(retained, abs=0.006)


@pytest.mark.parametrize(
    "arguments",
    [
        {"budget": "0.4"},
        {"percentile": "70"},
        {"budget": [0.4]},
        {"budget": 0.4, "rank": "0.2"},
        {"budget": 0.4, "rank": None},
        {"budget": float("nan")},
        {"budget": 0.4, "rank": float("nan")},
        {"budget": 0.4, "splitter": ["quadtree"]},
        {"budget": 0.4, "scorer": 5},
        {"budget": 0.4, "gate": None},
        {"budget": 0.4, "canvas": [2048, 1152]},
        {"budget": 0.4, "canvas": (2048.0, 1152.0)},
        {"budget": 0.4, "canvas": (10**9, 10**9)},
        {"budget": 0.4, "canvas": np.array([2048, 1152])},
    ],
)
def test_arguments_of_another_type_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"^(budget|percentile|rank|splitter|scorer|gate|canvas): "):
        Tokenizer(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "images", [[1, 2], np.zeros((1, 3, 8, 8), np.uint8), torch.empty((1, 3, 8, 8), device="meta", dtype=torch.uint8)]
)
def test_a_batch_that_holds_no_pixels_is_refused(images: object) -> None:
    with pytest.raises(InputError, match="images: "):
        Tokenizer(budget=0.4).batch(images)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [0.25, 0.4, 0.7, 1.0])
def test_single_pass_is_calibrated_by_its_own_law(budget: float) -> None:
    tokenizer = Tokenizer.calibrated("visdrone", budget, splitter="single_pass", scorer="entropy", gate="homogeneity")
    assert (tokenizer.splitter, tokenizer.scorer) == ("single_pass", "entropy")
    assert tokenizer(random_image(576, 1024, 0)).retained == pytest.approx(budget, abs=0.001)
    with pytest.raises(BudgetError, match=r"outside 0\.25 to 1"):
        Tokenizer.calibrated("visdrone", 0.2, splitter="single_pass")


def test_single_pass_keeps_its_budget_on_real_frames(visdrone: Path) -> None:
    tokenizer = Tokenizer.calibrated("visdrone", 0.40, splitter="single_pass")
    retained = [tokenizer(path).retained for path in images_in(visdrone / "images")[::20]]
    assert np.mean(retained) == pytest.approx(0.40, abs=0.003)


def test_a_reading_other_than_the_measured_one_is_refused() -> None:
    with pytest.raises(InputError, match="gate: table 'visdrone' was measured with gate 'lambda_min'"):
        Tokenizer.calibrated("visdrone", 0.40, gate="homogeneity")
    with pytest.raises(InputError, match="gate: table"):
        Tokenizer.calibrated("visdrone", 0.40, gate=GATES["lambda_min"])
    assert Tokenizer.calibrated("visdrone", 0.40, gate="homogeneity", rank=0.0).percentile is not None
    for canvas in ((1024, 576), "native"):
        with pytest.raises(InputError, match="canvas: table 'visdrone' was measured at 2048x1152, not"):
            Tokenizer.calibrated("visdrone", 0.40, canvas=canvas)
    assert Tokenizer.calibrated("visdrone", 0.40, canvas=(1152, 2048)).canvas == (1152, 2048)
    own = RetentionTable("own", {"canvas": [640, 384]}, (RetentionCurve("tophat", 0.2, (0.0, 100.0), (0.8, 0.1)),))
    assert Tokenizer.calibrated(own, 0.5).canvas == (640, 384)
    with pytest.raises(InputError, match=r"budget: '0\.4' is not a number"):
        Tokenizer.calibrated("visdrone", "0.4")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="table: a int"):
        Tokenizer.calibrated(5, 0.4)  # type: ignore[arg-type]


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


def test_a_list_gives_the_tokens_of_each() -> None:
    tokenizer = Tokenizer(budget=0.5, canvas="native")
    images: list[Any] = [
        np.random.default_rng(seed).integers(0, 256, (100 + seed, 130, 3), np.uint8) for seed in (1, 2)
    ]
    together = tokenizer(images)
    assert [tokens.height for tokens in together] == [101, 102]
    for tokens, image in zip(together, images, strict=True):
        np.testing.assert_array_equal(tokens.boxes, tokenizer(image).boxes)
    assert tokenizer([]) == []


def _as_array(pixels: CanvasPixels) -> Any:
    return np.zeros(pixels.extent.grid_shape(16), np.float32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (_as_array, r"returned a ndarray of shape \(8, 12\), not a vgtok.tokenize.Pyramid\(fine \(8, 12\), middle"),
        (lambda pixels: None, "returned a NoneType, not a vgtok.tokenize.Pyramid"),
        (lambda pixels: Pyramid(*[np.zeros((2, 3), np.float32)] * 3), r"returned 'fine' as float32 array \(2, 3\)"),
        (lambda pixels: top_hat(pixels)._replace(coarse="no"), "returned 'coarse' as str"),
        (
            lambda pixels: top_hat(pixels)._replace(middle=top_hat(pixels).middle * np.nan),
            "returned NaN or infinity in 'middle'",
        ),
    ],
)
def test_a_scorer_that_returns_something_else_is_told(changed: Any, message: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    with pytest.raises(InputError, match=f"^scorer: {message}"):
        Tokenizer(budget=0.5, scorer=changed, canvas="native")(image)


def test_a_gate_that_returns_something_else_is_told() -> None:
    image = np.random.default_rng(0).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    with pytest.raises(
        InputError, match=r"^gate: returned a ndarray of shape \(8, 12\), not a vgtok.tokenize.Structure"
    ):
        Tokenizer(budget=0.5, gate=_as_array, canvas="native")(image)
    own = Tokenizer(budget=0.5, scorer=top_hat, gate=GATES["lambda_min"], canvas="native")(image)
    np.testing.assert_array_equal(own.boxes, Tokenizer(budget=0.5, canvas="native")(image).boxes)
