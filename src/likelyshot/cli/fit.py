"""The command likelyshot fit."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.own_data import (
    CacheOption,
    EncoderOption,
    ForBaseOption,
    ForValOption,
    LabelColumnOption,
    OneMethodOption,
    OwnDeviceOption,
    OwnParamOption,
    OwnRectifyOption,
    OwnSeedOption,
    PathColumnOption,
    RejectOption,
    SupportOption,
    TextColumnOption,
)
from likelyshot.cli.shared import JsonOption, check_kept, print_json, running


def fit(
    support: SupportOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model to write, .safetensors.")] = Path(
        "model.safetensors"
    ),
    method: OneMethodOption = None,
    encoder: EncoderOption = None,
    reject: RejectOption = 0.05,
    label_column: LabelColumnOption = None,
    path_column: PathColumnOption = None,
    text_column: TextColumnOption = None,
    val: ForValOption = None,
    base: ForBaseOption = None,
    param: OwnParamOption = None,
    rectify: OwnRectifyOption = False,
    seed: OwnSeedOption = 0,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Fit a model on labelled examples and save it for likelyshot predict.

    The file holds the vectors of the examples and the settings, but no images. Also prints the accuracy to expect,
    estimated on held-out examples.

    For example:

        likelyshot fit --support labelled/ -o model.safetensors
        likelyshot predict model.safetensors pile/ -o predictions.csv
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import own_data
        from likelyshot.data.files import output_file, output_folder
        from likelyshot.errors import InputError
        from likelyshot.own_data.pipeline import fit as run

        chosen = own_data.method_and_params(method, param)
        if output.suffix.lower() != ".safetensors":
            raise InputError(f"expected a file for the model, got {output}: use a name ending in .safetensors")
        output_file(output)
        check_kept(output, *support, val, base)
        fitted = run(
            support,
            label_column=label_column,
            path_column=path_column,
            text_column=text_column,
            encoder=encoder,
            reject=reject,
            rectify=rectify or None,
            seed=seed,
            device=device,
            cache="user" if cache else None,
            stage=own_data.stages(start),
            say=lambda sentence: own_data.show(screen, sentence),
            **chosen,
            **own_data.other_classes(val, base, rectify),
        )
        own_data.show_confusion(screen, fitted.expectation)
        output_folder(output.parent)
        fitted.model.save(output)
    own_data.show(screen, f"Wrote the model to {output}.")
    own_data.show_problems(screen, fitted.problems)
    again = shlex.join(["likelyshot", "predict", str(output), "pile/", "-o", "predictions.csv"])
    own_data.show(screen, f"Next: classify a pile with {again}")
    if as_json:
        print_json(
            {
                "output": str(output),
                "words": fitted.words,
                **own_data.model_facts(fitted.model),
                "expectation": own_data.expectation_facts(fitted.expectation),
                "problems": own_data.problem_facts(fitted.problems),
            }
        )
