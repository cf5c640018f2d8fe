"""A subset is the same data set over fewer images."""

from pathlib import Path

from tests.data.folders import write_visdrone
from vgtok.data.dataset import open_annotated
from vgtok.data.subset import spread


def test_images_are_spread_and_keep_their_ids(tmp_path: Path) -> None:
    lines = {f"{number}": f"{number},10,20,20,1,4,0,0\n" for number in range(7)}
    whole = open_annotated(f"visdrone:{write_visdrone(tmp_path / 'v', lines)}")
    part = spread(whole, 3)
    assert [path.stem for path in part.images] == ["0", "2", "4"]
    assert part.image_ids == tuple(whole.image_ids[at] for at in (0, 2, 4))
    assert (part.name, part.names, part.category_ids) == (whole.name, whole.names, whole.category_ids)
    assert part.problems == whole.problems
    for index, at in enumerate((0, 2, 4)):
        assert part.annotations(index).boxes[0, 0] == at
        assert part.reading(index) == whole.reading(at)
        assert part.size(index) == whole.size(at)
    assert spread(whole, 7) is whole
