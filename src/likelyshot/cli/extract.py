"""The command likelyshot extract."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import DeviceOption, JsonOption
from likelyshot.cli.own_data import CacheOption
from likelyshot.cli.train import keep_memory


def extract(
    data: Annotated[
        Path, typer.Argument(help="Images: a folder or zip of class folders. For a trained head: a features file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The features file to write, .safetensors.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="An encoder of likelyshot train, such as best.safetensors.", show_default=False)
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Without a checkpoint: a pre-trained encoder by name.")
    ] = "efficientnet_lite0",
    split: Annotated[str | None, typer.Option(help="train, val or test; without it, all.", show_default=False)] = None,
    splits: Annotated[
        str, typer.Option(help="cub, mini_imagenet ..., a JSON file, or a folder of train.csv, val.csv and test.csv.")
    ] = "",
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read.")
    ] = False,
    device: DeviceOption = "cpu",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Features of images, for evaluate, sweep and explore. What is there already is not computed again.

    With a pre-trained encoder, vectors are kept as they are made: after Ctrl-C the same command goes on where it was.

    For example:

        likelyshot extract birds.zip --splits cub --split test -o cub_test.safetensors

        likelyshot extract images --checkpoint runs/mini_imagenet_resnet12_mll/best.safetensors -o features.safetensors
    """
    keep_memory()
    with running(as_json) as (screen, start):
        from likelyshot.data.feature_files import READERS
        from likelyshot.data.files import output_folder
        from likelyshot.encoders.extract import extract as run
        from likelyshot.encoders.extract import extract_pretrained
        from likelyshot.errors import InputError
        from likelyshot.machine import check_device
        from likelyshot.training.recipes import Data

        check_device(device)
        if output.suffix != ".safetensors":
            raise InputError(f"expected a file .safetensors for the features, but got {output}: rename it")
        output_folder(output.parent, make=False)
        cached = data.suffix.lower() in READERS and data.is_file()
        source = Data(
            path="" if cached else str(data),
            features=str(data) if cached else "",
            splits=splits,
            skip_unreadable=skip_unreadable,
        )
        started = [time.perf_counter()]

        def begin(total: int) -> Callable[[int], None]:
            progress, say = start(total)
            say("images")
            started[0] = time.perf_counter()
            return progress

        output_folder(output.parent)
        if checkpoint is not None:
            features, computed = run(source, split, checkpoint, output, device=device, start=begin)
        else:
            kept: Literal["user"] | None = "user" if cache else None
            features, computed = extract_pretrained(
                source, split, encoder, output, device=device, cache=kept, start=begin
            )
        seconds = time.perf_counter() - started[0]
    speed = f"{len(features) / seconds:,.0f} images/s" if computed else "already there, nothing computed"
    left_out = f", {features.source['left_out']} left out" if "left_out" in features.source else ""
    screen.print(f"{len(features):,} x {features.dim} features: {output} ({speed}{left_out})", soft_wrap=True)
    if as_json:
        found = {"images": len(features), "dim": features.dim, "digest": features.digest, "computed": computed}
        print_json({**found, "source": dict(features.source)})
