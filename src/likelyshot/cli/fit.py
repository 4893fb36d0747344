"""The command likelyshot fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import JsonOption
from likelyshot.cli.own_data import (
    CacheOption,
    EncoderOption,
    ForBaseOption,
    ForValOption,
    OneMethodOption,
    OwnDeviceOption,
    OwnParamOption,
    OwnRectifyOption,
    OwnSeedOption,
    RejectOption,
    SupportOption,
)


def fit(
    support: SupportOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model to write.")] = Path("model.safetensors"),
    method: OneMethodOption = None,
    encoder: EncoderOption = None,
    reject: RejectOption = 0.05,
    val: ForValOption = None,
    base: ForBaseOption = None,
    param: OwnParamOption = None,
    rectify: OwnRectifyOption = False,
    seed: OwnSeedOption = 0,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Fit once, use later: a model of labelled examples in one file, without their images.

    For example:

        likelyshot fit --support labelled/ -o model.safetensors

        likelyshot predict model.safetensors pile/ -o predictions.csv
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import own_data
        from likelyshot.data.files import output_folder
        from likelyshot.errors import InputError
        from likelyshot.own_data.pipeline import fit as run

        chosen = own_data.chosen_method(method)
        if output.is_dir() or output.suffix.lower() != ".safetensors":
            raise InputError(f"expected a file ending in .safetensors for the model, got {output}: name it so")
        output_folder(output.parent, make=False)
        fitted = run(
            support,
            encoder=encoder,
            method=chosen,
            params=own_data.method_params(chosen, param),
            reject=reject,
            base=own_data.base_features(base, rectify),
            validation=own_data.validation_features(val),
            rectify=rectify or None,
            seed=seed,
            device=device,
            cache="user" if cache else None,
            stage=own_data.stages(start),
            say=lambda sentence: own_data.show(screen, sentence),
        )
        own_data.show_confusion(screen, fitted.expectation)
        output_folder(output.parent)
        fitted.model.save(output)
    own_data.show(screen, f"The model: {output}")
    own_data.show_problems(screen, fitted.problems)
    if as_json:
        print_json(
            {
                "output": str(output),
                "words": fitted.words,
                **own_data.model_facts(fitted.model),
                "expectation": own_data.expectation_facts(fitted.expectation),
                "problems": own_data.report(fitted.problems),
            }
        )
