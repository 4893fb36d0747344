"""The command likelyshot extract."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from likelyshot.cli.own_data import CacheOption
from likelyshot.cli.shared import (
    DeviceOption,
    JsonOption,
    PartOption,
    RayOption,
    check_kept,
    on_cluster,
    part_of,
    print_json,
    running,
)


def extract(
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder or zip of class folders, or of a pile of images; for a head trained on features, a "
            "features file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The features file to write, ending in .safetensors.")],
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="An encoder of likelyshot train, such as best.safetensors.", show_default=False),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="A pre-trained encoder by name, if there is no --checkpoint.")
    ] = "efficientnet_lite0",
    split: Annotated[str | None, typer.Option(help="train, val or test. Default: all.", show_default=False)] = None,
    splits: Annotated[
        str, typer.Option(help="cub, mini_imagenet ..., a JSON file, or a folder of train.csv, val.csv and test.csv.")
    ] = "",
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read, instead of stopping.")
    ] = False,
    device: DeviceOption = "cpu",
    cache: CacheOption = True,
    part: PartOption = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute features of images, for evaluate, sweep and explore, or to classify them on another machine.

    The file keeps the paths of the images, so that answers about it name them. A file that already has the features of
    the same images and encoder is not computed again. Vectors are cached as they are made: after Ctrl-C, the same
    command continues where it stopped.

    For example:

        likelyshot extract images/ -o features.safetensors
        likelyshot extract birds.zip --splits cub --split test -o cub_test.safetensors
        likelyshot extract images/ --checkpoint runs/mini/best.safetensors -o features.safetensors
    """
    with running(as_json) as (screen, start), on_cluster(ray):
        from likelyshot.encoders.extract import extract as run
        from likelyshot.encoders.extract import extract_part

        check_kept(output, data, checkpoint)
        started = [time.perf_counter()]

        def begin(total: int) -> Callable[[int], None]:
            progress, say = start(total)
            say("images")
            started[0] = time.perf_counter()
            return progress

        settings: dict[str, Any] = {
            "encoder": str(checkpoint) if checkpoint else encoder,
            "split": split,
            "splits": splits or None,
            "skip_unreadable": skip_unreadable,
            "device": device,
            "cache": "user" if cache else None,
            "start": begin,
        }
        if (this_part := part_of(part)) is not None:
            done, earlier = extract_part(data, output, this_part, **settings)
            before = f"; {earlier} were finished before" if earlier else ""
            command = shlex.join(["likelyshot", "merge", f"{output}.parts", "-o", str(output)])
            count = "1 block" if done == 1 else f"{done} blocks"
            finished = f"Finished {this_part}: {count} of images{before}. When all parts are finished: {command}"
            screen.print(finished, soft_wrap=True)
            return
        result = run(data, output, **settings)
        seconds = time.perf_counter() - started[0]
    left_out = f", {result.source['left_out']} left out" if "left_out" in result.source else ""
    what, speed = f"{result.count:,} x {result.dim} features", f"{result.count / seconds:,.0f} images/s"
    if result.computed:
        message = f"Wrote {what} to {output} ({speed}{left_out})"
    else:
        message = f"{output} has the {what} of these images already (nothing computed{left_out})"
    screen.print(message, soft_wrap=True)
    screen.print(f"Next: {shlex.join(['likelyshot', 'explore', str(output)])} shows them on a page", soft_wrap=True)
    if as_json:
        summary = {"images": result.count, "dim": result.dim, "digest": result.features.digest}
        print_json({**summary, "computed": result.computed, "source": dict(result.source)})
