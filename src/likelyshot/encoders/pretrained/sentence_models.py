"""Any text model of sentence-transformers; weights from safetensors only."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from likelyshot.encoders.pretrained import FunctionEmbedder, identity, need, probed
from likelyshot.encoders.pretrained.hf_models import load


def open_sentence(model: str, device: str = "cpu") -> FunctionEmbedder:
    """Load a model from a folder, from a package that carries its files, or by its name on the hub."""
    sentences = need("sentence_transformers", "'likelyshot[text]'")
    place = model if Path(model).is_dir() else packaged_model(model) or model
    options = {"use_safetensors": True}
    network = load(
        "sentence-transformers",
        model,
        lambda: sentences.SentenceTransformer(str(place), device=device, model_kwargs=options),
    )

    def run(batch: list[str]) -> Any:
        return network.encode(batch, batch_size=len(batch), convert_to_numpy=True, show_progress_bar=False)

    vocabulary = repr(sorted(network.tokenizer.get_vocab().items()))
    facts = ["sentence", *map(_part, network), str(network.max_seq_length), vocabulary]
    digest = identity(facts, network.state_dict())
    return probed(f"sentence:{model}", digest, "text", lambda text: text, run)


def packaged_model(package: str) -> Path | None:
    """Find the folder of a model among the files of an installed package, by its modules.json."""
    try:
        files = metadata.files(package) or []
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: not a name that a package can have
        return None
    folders = [Path(str(file.locate())).parent for file in files if file.name == "modules.json"]
    return min(folders, key=lambda folder: len(folder.parts), default=None)


def _part(module: Any) -> str:
    """Name a part of a model, the same in all versions of sentence-transformers; pooling has no weights to tell it."""
    mode = module.get_pooling_mode_str() if hasattr(module, "get_pooling_mode_str") else ""
    return f"{type(module).__name__} {mode or getattr(module, 'pooling_mode', '')}"
