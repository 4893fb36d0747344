"""Models on disk: tensors and facts in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from likelyshot.data.files import write_whole
from likelyshot.errors import InputError
from likelyshot.methods.facts import BASE_STATISTICS

FORMAT, VERSION = "likelyshot.model", 1

#: What a file says of a model besides its tensors, and of which type each fact is.
FACTS: dict[str, Any] = {
    "classes": list,
    "method": str | None,
    "params": dict,
    "temperatures": dict,
    "encoder": str,
    "encoder_digest": str,
    "rectified": bool,
    "reject": float | int,
    "seed": int,
}
#: Tensors that every model has; it may have statistics of base classes too.
TENSORS = ("support", "labels")


def write_model(path: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a model, whole or not at all."""
    text = json.dumps({key: facts[key] for key in FACTS}, allow_nan=False)
    metadata = {"format": f"{FORMAT}/{VERSION}", "model": text}
    return write_whole(path, safetensors_bytes({key: value.contiguous() for key, value in tensors.items()}, metadata))


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and facts, all that there must be and nothing else, each of its type."""
    if not path.is_file():
        raise InputError(f"expected a model, but {path} is no file: write one with likelyshot fit")
    with path.open("rb") as file:
        if not file.read(9).endswith(b"{"):
            raise InputError("expected a model in safetensors, but got something else: write one with likelyshot fit")
    with safe_open(path, "pt") as stored:
        metadata = stored.metadata() or {}
        _check_format(metadata.get("format", ""))
        tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 (no mapping)
    facts = json.loads(metadata.get("model", "null"))
    if not (
        isinstance(facts, dict)
        and facts.keys() == FACTS.keys()
        and all(isinstance(facts[key], kind) for key, kind in FACTS.items())
        and set(TENSORS) <= tensors.keys() <= {*TENSORS, *BASE_STATISTICS}
        and all(isinstance(value, float | int) for value in facts["temperatures"].values())
    ):
        raise InputError("expected the facts and tensors of a model, but got others: fit it anew")
    for key in BASE_STATISTICS:
        if key in tensors and not tensors[key].isfinite().all():
            raise InputError(f"expected finite statistics, but {key} holds infinity or NaN: fit it anew")
    facts["params"] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in facts["params"].items()
    }
    return tensors, facts


def _check_format(found: str) -> None:
    name, _, version = found.partition("/")
    if name != FORMAT or not version.isdecimal():
        what = repr(found) if found else "something else, perhaps features"
        raise InputError(f"expected a model, but got {what}: write one with likelyshot fit")
    if int(version) > VERSION:
        raise InputError(f"expected a model of version {VERSION}, but got {version}: upgrade likelyshot")
