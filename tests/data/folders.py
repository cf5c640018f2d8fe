"""Small data sets on disk, for the tests that read, convert and evaluate them."""

from pathlib import Path

from PIL import Image


def write_visdrone(folder: Path, files: dict[str, str], size: tuple[int, int] = (100, 80)) -> Path:
    """A VisDrone folder with a black image of `size` (width, height) for each stem and its annotation text."""
    for name in ("images", "annotations"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for stem, text in files.items():
        Image.new("RGB", size).save(folder / "images" / f"{stem}.jpg")
        (folder / "annotations" / f"{stem}.txt").write_text(text)
    return folder
