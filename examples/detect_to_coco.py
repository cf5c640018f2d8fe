"""Detect objects in an image at 40% of the tokens; write a picture and a COCO results file.

python examples/detect_to_coco.py [IMAGE]
"""

import json
import sys
from pathlib import Path

from PIL import Image

import vgtok
from vgtok.data import render_scene

if len(sys.argv) > 1:
    image = Path(sys.argv[1])
else:
    image = Path("example.png")
    Image.fromarray(render_scene(seed=89, width=1024, height=576).pixels).save(image)

detector = vgtok.load("vgtok-tiny")
result = detector(image, budget=0.40, score_threshold=0.3)
result.plot(tokens=True).save("example-found.png")
Path("example-found.json").write_text(json.dumps(result.to_coco(image_id=image.name)), encoding="utf-8")
print(f"{len(result)} objects with {len(result.tokens)} of {result.tokens.dense} tokens")
