"""Notebooks as pages: each .ipynb is shown with the outputs it was committed with, and can be downloaded."""

import base64
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbformat import NotebookNode

_PICTURES = {"image/png": "png", "image/jpeg": "jpg"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page, and its pictures, for every notebook among the files."""
    for source in [file for file in files if file.src_uri.endswith(".ipynb")]:
        notebook = nbformat.read(source.abs_src_path, as_version=4)
        stem = Path(source.src_uri).with_suffix("")
        text, pictures = page(notebook, stem.name)
        files.append(File.generated(config, f"{stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{stem.parent}/{name}", content=content))
    return files


def page(notebook: NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the pictures among its outputs by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            shown = _output(output, f"{name}-{len(pictures) + 1}", pictures)
            if shown:
                parts.append(f'<div class="notebook-output" markdown>\n{shown}\n</div>')
    # After the title, where a reader decides whether to run it.
    parts.insert(1, f"[Download this notebook]({name}.ipynb)")
    return "\n\n".join(parts) + "\n", pictures


def _output(output: NotebookNode, label: str, pictures: dict[str, bytes]) -> str:
    """One output: a picture where there is one, else its text."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.get("data", {})
    for kind, suffix in _PICTURES.items():
        if kind in data:
            file = f"{label}.{suffix}"
            pictures[file] = base64.b64decode(data[kind])
            return f"![output]({file})"
    return f"```text\n{data['text/plain'].rstrip()}\n```" if "text/plain" in data else ""
