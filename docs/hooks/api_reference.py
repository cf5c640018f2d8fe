"""The reference: the names each package offers, from the package's own list. A new public name appears by itself.

A page of the reference says `<!-- names of vgtok.tokenize -->` where the names of that package belong.
"""

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_MARK = re.compile(r"^<!-- names of ([\w.]+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the names of a package where the page asks for them."""
    return _MARK.sub(lambda mark: public_names(mark[1]), markdown)


def public_names(package: str) -> str:
    """The public names of a package under the headings they are imported by; those `vgtok` has too as links."""
    top = {f"vgtok.{module}.{name}" for name, module in homes_of("vgtok").items()} if package != "vgtok" else set()
    elsewhere, parts = [], []
    for name, module in homes_of(package).items():
        home = f"{package}.{module}.{name}"
        if home in top:
            elsewhere.append(f"[`{package}.{name}`](index.md#{home})")
        else:
            parts.append(f"::: {home}\n    options: {{ heading: {package}.{name}, toc_label: {name} }}\n")
    see = [f"With the public names: {', '.join(elsewhere)}.\n"] if elsewhere else []
    return "\n".join([*see, *parts])


def homes_of(package: str) -> dict[str, str]:
    """The names a package loads on first use, each with the module below the package that defines it.

    Read from the source, so that nothing has to be imported: the names may need packages that are not installed.
    """
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_names":
            homes = ast.literal_eval(node.args[1])
            return {name: module for module, names in homes.items() for name in names}
    raise ValueError(f"{package} offers no names through lazy_names")
