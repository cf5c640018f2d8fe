"""The page of the names `import vgtok` offers, from the package's own list: a new public name appears by itself."""

from itertools import groupby

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import vgtok

PAGE = "reference/index.md"

_HEAD = """# The public names

What `import vgtok` offers. Names load on first use, so the import itself costs next to nothing; those that need torch
say so when it is missing. The stages behind these names are on the pages that follow.

"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content=public_names()))
    return files


def public_names() -> str:
    """Every public name under a heading of the stage it comes from, in the order the data moves."""
    homes = vgtok._HOME
    parts = [_HEAD]
    for stage, names in groupby(homes, key=lambda name: homes[name].split(".")[1]):
        parts.append(f"## {stage}\n\n")
        for name in names:
            shown = f"    options: {{ heading: vgtok.{name}, toc_label: {name} }}"
            parts.append(f"::: {homes[name]}.{name}\n{shown}\n\n")
    return "".join(parts)
