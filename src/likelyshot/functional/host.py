"""When the host may ask a device for values: it then waits until the device has computed all that was asked before."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch import Tensor

#: Devices that have no double precision.
WITHOUT_DOUBLE = {"mps"}

_state = threading.local()


@contextlib.contextmanager
def checked_inputs() -> Iterator[None]:
    """Have methods skip the checks of the values of their inputs, in this thread.

    For callers that run a method on one chunk of tasks after the other and have checked all features before: they are
    finite, non-negative if the method needs that, and have lengths from 1e-15 to 1e15 or zero, and labels are in range.

    >>> with checked_inputs():
    ...     inputs_are_checked()
    True
    >>> inputs_are_checked()
    False
    """
    before = inputs_are_checked()
    _state.checked = True
    try:
        yield
    finally:
        _state.checked = before


def inputs_are_checked() -> bool:
    """Whether the caller has checked the values of the inputs."""
    return getattr(_state, "checked", False)


def on_accelerator(x: Tensor) -> bool:
    """Whether to ask for values of this tensor makes the host wait, so that a few rounds in vain cost less."""
    return not x.is_cpu


def widest(x: Tensor) -> Tensor:
    """Give a tensor in the highest precision that its device has.

    >>> import torch
    >>> widest(torch.zeros(1)).dtype
    torch.float64
    """
    return x.float() if x.device.type in WITHOUT_DOUBLE else x.double()
