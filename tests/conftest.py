"""Shared by all tests: the VisDrone images and the starting checkpoint, where environment variables name them."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Where cores are shared, how long an example took says nothing about the code.
settings.register_profile("vgtok", deadline=None)
settings.load_profile("vgtok")

SLOW_FOLDERS = tuple(
    f"tests/{folder}/" for folder in ("bench", "cli", "docs", "export", "fuzz", "hosts", "serve", "study", "train")
)
"""What `make quick` leaves out: folders whose tests run commands, train, serve, or import a large library."""

QUICK_FILES = ("tests/docs/test_claims.py", "tests/docs/test_prose.py", "tests/train/test_recipe.py")
"""What is quick all the same inside a slow folder."""

SLOW_TESTS = frozenset(
    {
        "test_a_clip_of_200_frames_keeps_its_identities",
        "test_all_images_of_one_size_get_the_same_count",
        "test_a_full_frame_is_the_same_from_tensors_and_on_any_number_of_threads",
        "test_counts_equal_those_of_an_unfused_run",
        "test_each_fault_is_named",
        "test_fifteen_hundred_objects_train_and_predict_without_nan",
        "test_frames_beyond_pillows_own_limit_are_read",
        "test_large_frames_are_read_without_a_warning",
        "test_mutated_files_are_pixels_or_one_sentence",
        "test_no_program_is_run_for_postscript_called_jpg",
        "test_pillows_own_limit_stands_for_others_and_reads_run_side_by_side",
        "test_too_little_memory_is_called_that",
        "test_visdrone_equals_the_brute_force_matcher",
        "test_every_class_appears",
        "test_repainting_one_object_shows_exactly_its_box",
        "test_truth_holds_from_tiny_to_large",
        "test_a_wide_frame_is_filled_to_its_edges",
        "test_truth_holds_at_any_size_and_scale",
        "test_density_of_traffic_and_crowd_is_heeded",
        "test_other_classes_start_nineteen_tensors_anew",
        "test_workers_give_the_same_table",
    }
)
"""Tests of more than two or three seconds in the other folders, as `pytest --durations` shows them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and skip those of a GPU where there is none."""
    no_gpu = pytest.mark.skip(reason="needs a CUDA GPU, and torch sees none")
    if any("gpu" in item.keywords for item in items):
        import torch

        if torch.cuda.is_available():
            no_gpu = pytest.mark.usefixtures()
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(no_gpu)
        name = getattr(item, "originalname", None)
        in_folder = item.nodeid.startswith(SLOW_FOLDERS) and not item.nodeid.startswith(QUICK_FILES)
        if in_folder or name in SLOW_TESTS:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def visdrone() -> Path:
    folder = os.environ.get("VGTOK_VISDRONE")
    if not folder:
        pytest.skip("VGTOK_VISDRONE does not name the VisDrone2019-DET val folder")
    return Path(folder)


@pytest.fixture(scope="session")
def deit() -> Path:
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not folder:
        pytest.skip("VGTOK_WEIGHTS does not name the folder of starting checkpoints")
    return Path(folder) / "deit_tiny_patch16_224.safetensors"
