"""Runs every notebook and writes its outputs back: `python docs/run_notebooks.py`.

No time and no name of a machine goes along. The tests run them the same way and compare what is printed.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

FOLDER = Path(__file__).parent / "notebooks"


def main() -> None:
    """Run all, with rendered frames in place of any data set: no photograph may end up in an output."""
    os.environ.pop("VGTOK_VISDRONE", None)
    for path in sorted(FOLDER.glob("*.ipynb")):
        path.write_text(nbformat.writes(executed(path)) + "\n")


def executed(path: Path) -> NotebookNode:
    """The notebook with fresh outputs, its kernel started in the notebook's own folder."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        # Sockets on disk: the kernel listens on no port.
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        place = {"metadata": {"path": str(path.parent)}}
        client = NotebookClient(
            notebook, config=config, timeout=240, record_timing=False, coalesce_streams=True, resources=place
        )
        # Progress bars of other libraries complain where there are no widgets, and name their file.
        client.execute(env={**os.environ, "PYTHONWARNINGS": "ignore:IProgress"})
    # The name and version of the kernel are this machine's, not the notebook's.
    notebook.metadata = NotebookNode(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    return notebook


def printed(notebook: NotebookNode) -> list[str]:
    """What each code cell says: its streams and the text of its results, pictures left out."""
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text)
    data = output.get("data", {})
    return "" if any(kind.startswith("image/") for kind in data) else str(data.get("text/plain", ""))


if __name__ == "__main__":
    main()
