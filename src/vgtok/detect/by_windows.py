"""Frames that are read in parts: a frame and what predicts on one canvas enter, one result in frame pixels leaves."""

import time
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any

import numpy as np

from vgtok.detect.result import Result, Timings
from vgtok.slicing.frames import Frame, fit_frame, partition_frame
from vgtok.slicing.windows import WindowFound, Windows, merged_windows
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

Predict = Callable[[np.ndarray[Any, np.dtype[np.uint8]], Canvas, Tokens], Result]
"""(H, W, 3) pixels, their canvas and its partition to a result in these pixels."""


def detect_by_windows(
    frame: Frame,
    windows: Windows,
    reader: Tokenizer,
    predict: Predict,
    finished: MutableMapping[int, WindowFound],
    class_names: tuple[str, ...],
) -> Result:
    """Partition the whole frame, then detect in the windows that show something, one after another.

    Windows in `finished`, by number, are not read again; every further one is added to it.
    """
    started = time.perf_counter()
    partition = partition_frame(frame, reader)
    tokenized = 1000 * (time.perf_counter() - started)
    places = windows.over(frame.height, frame.width)
    chosen = [number for number, window in enumerate(places) if partition.shows_something(*window.core)]
    for number in chosen:
        window = places[number]
        if number in finished:
            continue
        pixels, _ = frame.read(window.x, window.y, window.height, window.width)
        tokens = partition.part(window.x, window.y, window.height, window.width)
        one = predict(pixels, fit_canvas(pixels, "native"), tokens)
        shift = np.array([window.x, window.y] * 2, dtype=np.float64)
        finished[number] = WindowFound(one.boxes + shift, one.scores, one.labels, one.timings.encoder, one.timings.head)
    found = {number: finished[number] for number in chosen}
    merged = merged_windows(places, found, (frame.height, frame.width))
    return Result(
        merged.boxes,
        merged.scores.astype(np.float32),
        merged.labels,
        class_names,
        partition.tokens,
        Timings(tokenized, sum(one.encoder for one in found.values()), sum(one.head for one in found.values())),
        frame.picture(),
        (len(chosen), len(places)),
    )


def detect_fitted(frame: Frame, reader: Tokenizer, predict: Predict) -> Result:
    """Fit the whole frame to the canvas of the reader and detect there."""
    started = time.perf_counter()
    canvas, partition = fit_frame(frame, reader)
    tokenized = 1000 * (time.perf_counter() - started)
    result = predict(frame.picture(), canvas, partition.whole())
    return replace(result, tokens=partition.tokens, timings=replace(result.timings, tokenizer=tokenized))
