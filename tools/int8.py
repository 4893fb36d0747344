"""Measure EfficientNet-Lite0 with 8-bit numbers: speed on one core, and features to compare with `tools/encoders.py`.

python tools/int8.py cub.zip OUTPUT [--splits cub]

Writes float.safetensors and static.safetensors of the test classes into the folder OUTPUT. The scales of static
quantisation come from 64 images of validation classes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

from likelyshot import Features
from likelyshot.data.datasets import open_images
from likelyshot.data.packaged import LITE0
from likelyshot.encoders.pretrained import central_square

BATCH, CALIBRATION = 8, 64
PARTS = ["Conv", "Add", "Clip", "GlobalAveragePool"]


class Images(CalibrationDataReader):
    """Give prepared images one by one."""

    def __init__(self, images: list[np.ndarray]) -> None:
        self.images = iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Give the next image, or None."""
        image = next(self.images, None)
        return None if image is None else {"images": image[None]}


def networks(folder: Path, images: list[np.ndarray]) -> dict[str, Any]:
    """Write the network in floating point and in both kinds of 8-bit numbers, and open all on one core."""
    paths = {"float": LITE0, **{name: folder / f"{name}.onnx" for name in ("static", "dynamic")}}
    quantize_static(
        str(paths["float"]),
        str(paths["static"]),
        Images(images),
        per_channel=True,
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
        op_types_to_quantize=PARTS,
    )
    quantize_dynamic(str(paths["float"]), str(paths["dynamic"]), weight_type=QuantType.QUInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return {name: onnxruntime.InferenceSession(str(path), options) for name, path in paths.items()}


def images_per_second(session: Any, images: np.ndarray) -> float:
    """Give the images of a second of processor time, the best of three runs after one to warm up."""
    times = []
    for _ in range(4):
        start = time.process_time()
        for first in range(0, len(images), BATCH):
            session.run(None, {"images": images[first : first + BATCH]})
        times.append(time.process_time() - start)
    return len(images) / min(times[1:])


def main() -> None:
    """Print the speed of each network, and write the features of two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images")
    parser.add_argument("output", type=Path)
    parser.add_argument("--splits", default="cub")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    val, test = (open_images(arguments.images, split=split, splits=arguments.splits) for split in ("val", "test"))
    chosen = [central_square(val.read(i)) for i in range(0, len(val), len(val) // CALIBRATION)][:CALIBRATION]
    sessions = networks(arguments.output, chosen)
    for name, session in sessions.items():
        speed = images_per_second(session, np.stack(chosen))
        print(f"{name}: {speed:.0f} images per second of one core", flush=True)
    for name in ("float", "static"):
        rows = []
        for first in range(0, len(test), BATCH):
            batch = np.stack([central_square(test.read(i)) for i in range(first, min(first + BATCH, len(test)))])
            rows.append(sessions[name].run(None, {"images": batch})[0])
        vectors = torch.from_numpy(np.concatenate(rows)).clamp_min(0)
        vectors[(vectors == 0).all(1)] = 1e-6
        source = {"encoder": name, "dataset": str(arguments.images)}
        print(
            "wrote", Features(vectors, test.labels, test.classes, source).save(arguments.output / f"{name}.safetensors")
        )


if __name__ == "__main__":
    main()
