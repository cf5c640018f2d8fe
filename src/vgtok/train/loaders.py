"""Prepare training samples in processes of their own, which end with the process that reads them."""

import os
import pickle
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any

import cv2
import torch

_samples: Any = None
"""In a loader: the samples of the run, by number."""


def loader_pool(samples: Any, count: int) -> ProcessPoolExecutor:
    """Return a pool of `count` processes that each hold a copy of `samples`."""
    # Spawned, not forked: a fork would copy the threads of OpenCV and CUDA in an undefined state.
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_start, initargs=(samples,))


def pickled_sample(number: int) -> bytes:
    """Return one sample as bytes: as tensors it would pass through shared memory, which containers keep small."""
    return pickle.dumps(_samples[number])


def _start(samples: Any) -> None:
    global _samples
    _samples = samples
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    # The training process alone says what a signal means, and may want a few more samples.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process after its parent, which a kill ends without a word."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
