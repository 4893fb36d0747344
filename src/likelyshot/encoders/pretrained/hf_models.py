"""Image and text networks of transformers, among them DINOv2 and CLIP; weights from safetensors only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from likelyshot.encoders.pretrained import FunctionEmbedder, identity, need, probed
from likelyshot.errors import InputError
from likelyshot.machine import copied_to

T = TypeVar("T")


def open_transformers(model: str, device: str = "cpu") -> FunctionEmbedder:
    """Load a network by its name on the hub, such as facebook/dinov2-small, or from a folder.

    An image becomes the output at the class token where the network has one, else the average over all places; a text
    becomes the average over its tokens.
    """
    transformers = need("transformers", "transformers")
    config = load("transformers", model, lambda: transformers.AutoConfig.from_pretrained(model))
    if hasattr(config, "vision_config"):
        raise InputError(f"expected a network of images or of texts, but {model} is one of both: use clip:{model}")
    network = load("transformers", model, lambda: _network(transformers, model, device))
    if hasattr(config, "num_channels"):
        return _image_encoder(f"transformers:{model}", transformers, model, network, device, _image_features)
    return _text_encoder(f"transformers:{model}", transformers, model, network, device)


def open_clip(model: str, device: str = "cpu") -> FunctionEmbedder:
    """Load CLIP, or a network like it, for its images: the projection that is compared with texts."""
    transformers = need("transformers", "transformers")
    network = load("clip", model, lambda: _network(transformers, model, device))
    if not hasattr(network, "get_image_features"):
        raise InputError(f"expected a network like CLIP, but {model} is not one: use transformers:{model}")

    def features(network: Any, pixels: Any) -> Any:
        out = network.get_image_features(pixel_values=pixels)
        return out if hasattr(out, "shape") else out.pooler_output  # a tensor before transformers 5

    return _image_encoder(f"clip:{model}", transformers, model, network, device, features)


def load(family: str, model: str, read: Callable[[], T]) -> T:
    """Load a part of a model, or raise InputError if that fails."""
    try:
        with _without_bars():
            return read()
    except Exception as error:  # the hub, its downloads and its configurations each have errors of their own
        reason = str(error).strip().partition("\n")[0]
        remedy = "check the name and the network, or give the folder of a model"
        raise InputError(f"expected a model, but {family} cannot load {model!r} ({reason}): {remedy}") from None


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Keep transformers from drawing its own progress bars."""
    logging = need("transformers.utils.logging", "transformers")
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def _network(transformers: Any, model: str, device: str) -> Any:
    network = transformers.AutoModel.from_pretrained(model, use_safetensors=True)
    return network.float().eval().to(device)


def _image_encoder(
    name: str, transformers: Any, model: str, network: Any, device: str, features: Callable[[Any, Any], Any]
) -> FunctionEmbedder:
    import numpy as np
    import torch

    processor = load("transformers", model, lambda: transformers.AutoImageProcessor.from_pretrained(model))

    def transform(image: Any) -> Any:
        return np.asarray(processor(images=image, return_tensors="np")["pixel_values"][0])

    def run(batch: list[Any]) -> Any:
        with torch.inference_mode():
            return features(network, copied_to(device, torch.from_numpy(np.stack(batch))))

    facts = ["image", name.partition(":")[0], type(network).__name__, processor.to_json_string()]
    digest = identity(facts, network.state_dict())
    return probed(name, digest, "image", transform, run)


def _image_features(network: Any, pixels: Any) -> Any:
    hidden = network(pixel_values=pixels).last_hidden_state.float()  # (n, tokens, d) or (n, d, h, w)
    if hidden.ndim == 4:
        return hidden.mean((2, 3))
    classes = any(key.endswith(("cls_token", "class_embedding")) for key in network.state_dict())
    return hidden[:, 0] if classes else hidden.mean(1)


def _text_encoder(name: str, transformers: Any, model: str, network: Any, device: str) -> FunctionEmbedder:
    import torch

    tokenizer = load("transformers", model, lambda: transformers.AutoTokenizer.from_pretrained(model))
    longest = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", 512))

    def run(batch: list[str]) -> Any:
        tokens = tokenizer(batch, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(device)
        with torch.inference_mode():
            hidden = network(**tokens).last_hidden_state.float()  # (n, tokens, d)
            weights = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1).clamp_min(1)

    vocabulary = repr(sorted(tokenizer.get_vocab().items()))
    digest = identity(["text", type(network).__name__, str(longest), vocabulary], network.state_dict())
    return probed(name, digest, "text", lambda text: text, run)
