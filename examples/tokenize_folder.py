"""Tokenize every image of a folder at 40% of the tokens; write boxes and a picture for each.

python examples/tokenize_folder.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

from vgtok import Tokenizer
from vgtok.data import SceneConfig, images_in, write_rendered

if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
else:
    write_rendered(Path("example-data"), seeds=(7, 11), width=640, height=384, config=SceneConfig(layout="street"))
    folder = Path("example-data/images")

tokenizer = Tokenizer(budget=0.40)
out = Path("example-tokens")
out.mkdir(exist_ok=True)
for path in images_in(folder):
    tokens = tokenizer(path)
    np.savez(out / f"{path.stem}.npz", boxes=tokens.source_boxes, sizes=tokens.sizes)
    tokens.overlay(path).save(out / f"{path.stem}.png")
    print(f"{path.name}: {len(tokens)} of {tokens.dense} tokens, {tokens.retained:.1%}")
