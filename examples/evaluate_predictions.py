"""Score a COCO results file by the rules of a benchmark, with the AP of each class.

python examples/evaluate_predictions.py [DATA RESULTS]      for example visdrone:DIR results.json
"""

import json
import sys
from pathlib import Path

from vgtok.data import SceneConfig, open_annotated, write_rendered
from vgtok.evaluate import evaluate, protocol_for, read_predictions

if len(sys.argv) > 2:
    data, results = sys.argv[1], Path(sys.argv[2])
else:
    scenes = SceneConfig(layout="street")
    data = write_rendered(Path("example-data"), seeds=(7, 11), width=640, height=384, config=scenes)
    # A perfect detector: every annotation, with a score.
    truth = json.loads(Path("example-data/annotations.json").read_text(encoding="utf-8"))["annotations"]
    results = Path("example-results.json")
    results.write_text(json.dumps([{**row, "score": 0.9} for row in truth]), encoding="utf-8")

dataset = open_annotated(data)
result = evaluate(dataset, read_predictions(results, dataset), protocol_for(None, dataset.name, None))
print(f"AP {result.metrics['AP']:.1f}; cap {result.max_detections}, {result.instances} boxes")
for entry in result.classes:
    if entry.ap is not None:
        print(f"{entry.name:>16}: {entry.boxes:4d} boxes, AP {entry.ap:5.1f}")
