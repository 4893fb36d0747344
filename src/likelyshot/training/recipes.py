"""Recipes: all that decides a training run, as typed TOML in which a wrong key or type is an error."""

from __future__ import annotations

import dataclasses
import json
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from likelyshot.errors import InputError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

T = TypeVar("T")

#: Mean and standard deviation of ImageNet's channels, as in `likelyshot.encoders.pixels`.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

#: What a number may be bounded by, and when it breaks the bound.
BOUNDS: dict[str, Callable[[Any, Any], bool]] = {"at least": operator.lt, "above": operator.le, "below": operator.ge}


def _least(default: T, least: float) -> T:
    kept: T = field(default=default, metadata={"at least": least})
    return kept


def _above(default: float) -> float:
    kept: float = field(default=default, metadata={"above": 0})
    return kept


def _share(default: float) -> float:
    kept: float = field(default=default, metadata={"at least": 0, "below": 1})
    return kept


@dataclass(frozen=True)
class Data:
    """Where the images or the cached features are; the one or the other."""

    path: str = ""  # a folder or zip of class folders, or of images listed in CSV splits
    splits: str = ""  # a packaged split such as "cub", a JSON file, or a folder of train.csv, val.csv, test.csv
    size: int = _least(84, 8)  # pixels that the encoder sees
    stored: int = _least(0, 0)  # pixels that are kept, from which crops are taken; 0: as many as `size`
    features: str = ""  # instead of images: a features file with splits train, val and test
    skip_unreadable: bool = False
    cache: str = ""  # a folder for the decoded pixels, which are mapped from there; without it they are kept in memory
    mean: tuple[float, ...] = field(
        default=MEAN, metadata={"at least": 0, "below": 1}
    )  # of pixels from 0 to 1, by channel
    std: tuple[float, ...] = field(default=STD, metadata={"above": 0})


@dataclass(frozen=True)
class EncoderChoice:
    """Which encoder, and what it starts from."""

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    weights: str = ""  # a checkpoint of the same encoder; otherwise the weights are drawn by run.seed


@dataclass(frozen=True)
class Augmentation:
    """What happens to training images; see `likelyshot.encoders.pixels`."""

    crop_scale: tuple[float, ...] = ()  # share of the area of a random resized crop, least and most
    padding: int = _least(0, 0)  # pixels around the image for a random crop of its own size
    flip: bool = True
    jitter: float = _least(0.0, 0)  # brightness, contrast and saturation vary by this share


@dataclass(frozen=True)
class Optimisation:
    """How weights are fitted, in either stage."""

    epochs: int = _least(0, 0)
    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: float = _above(0.1)
    momentum: float = _share(0.9)  # of sgd, as is nesterov
    nesterov: bool = False
    weight_decay: float = _least(5e-4, 0)
    schedule: Literal["constant", "cosine", "step", "onecycle"] = "cosine"
    milestones: tuple[int, ...] = ()  # epochs after which a step schedule multiplies the rate by `decay`
    decay: float = _above(0.1)
    augment: bool = True
    patience: int = _least(0, 0)  # stop after so many epochs without a better validation accuracy; 0: never


@dataclass(frozen=True)
class Pretrain(Optimisation):
    """Stage 1: cross entropy over the training classes."""

    batch_size: int = _least(128, 1)
    label_smoothing: float = _share(0.0)


@dataclass(frozen=True)
class Finetune(Optimisation):
    """Stage 2: episodes, scored by a metric."""

    lr: float = _above(1e-4)
    metric: str = "mll"
    params: Mapping[str, Any] = field(default_factory=dict)  # of the metric; lambda_max is 100 unless given
    ways: int = _least(5, 2)
    shots: int = _least(1, 1)
    queries: int = _least(15, 1)  # per class
    episodes: int = _least(100, 1)  # per epoch
    episodes_per_step: int = _least(1, 1)
    temperature: float = _above(1.0)  # scores are divided by it
    learn_temperature: bool = False  # from that start, with head_lr
    head_lr: float = _above(1e-3)


@dataclass(frozen=True)
class Validate:
    """Few-shot accuracy on the validation classes, after every epoch."""

    method: str = ""  # that of finetune.metric unless given
    params: Mapping[str, Any] = field(default_factory=dict)
    ways: int = _least(5, 2)
    shots: int = _least(1, 1)
    queries: int = _least(15, 1)
    tasks: int = _least(1_000, 1)
    seed: int = _least(0, 0)


@dataclass(frozen=True)
class Run:
    """Where and how it runs."""

    seed: int = _least(0, 0)
    output: str = ""  # runs/ and the recipe's name unless given
    precision: Literal["auto", "32", "bf16"] = "auto"  # auto: bf16 where an accelerator has it
    checkpoint_seconds: float = _least(60.0, 0)  # 0: after every step
    log_steps: int = _least(50, 1)
    sync_batchnorm: bool = False  # processes on CUDA devices normalise by the batches of all of them


@dataclass(frozen=True)
class Recipe:
    """A training run."""

    data: Data = Data()
    encoder: EncoderChoice = EncoderChoice()
    augmentation: Augmentation = Augmentation()
    pretrain: Pretrain = Pretrain()
    finetune: Finetune = Finetune()
    validate: Validate = Validate()
    run: Run = Run()

    def to_dict(self) -> dict[str, Any]:
        """Give all values, defaults included, as plain JSON."""
        document: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return document


def load_recipe(path: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe, put the changes `table.key=value` over it, and check it."""
    path = Path(path)
    table = _read(path, ())
    for text in changes:
        _change(table, text)
    recipe = recipe_from(table)
    if not recipe.run.output:
        recipe = dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, output=f"runs/{path.stem}"))
    return recipe


def recipe_from(table: Mapping[str, Any]) -> Recipe:
    """Check a table against the types of `Recipe`.

    >>> table = {"data": {"path": "images"}, "encoder": {"name": "conv4"}, "pretrain": {"epochs": 3}}
    >>> recipe_from(table).pretrain.lr
    0.1
    >>> recipe_from({"pretrain": {"epoch": 3}})
    Traceback (most recent call last):
    likelyshot.errors.InputError: unknown key 'pretrain.epoch' in the recipe: did you mean 'epochs'? Known: ...
    """
    recipe = _filled(Recipe, table, "")
    if bool(recipe.data.path) == bool(recipe.data.features):
        got = "both" if recipe.data.path else "neither"
        raise InputError(f"expected either data.path or data.features in the recipe, but got {got}: give one of them")
    if not recipe.encoder.name:
        raise InputError("expected encoder.name in the recipe, but it is missing: for example name = 'resnet12'")
    if recipe.pretrain.epochs == recipe.finetune.epochs == 0:
        raise InputError(
            "expected pretrain.epochs or finetune.epochs above 0, but both are 0: nothing would be trained"
        )
    for name, settings in (("pretrain", recipe.pretrain), ("finetune", recipe.finetune)):
        if settings.nesterov and not settings.momentum:
            raise InputError(f"expected {name}.momentum above 0 with nesterov, but got 0: change one of them")
    for key, values in (("mean", recipe.data.mean), ("std", recipe.data.std)):
        if len(values) != 3:
            raise InputError(
                f"expected three numbers for data.{key}, but got {list(values)}: one for red, green and blue each"
            )
    if len(recipe.augmentation.crop_scale) not in (0, 2):
        raise InputError(
            f"expected augmentation.crop_scale as [least, most], but got {list(recipe.augmentation.crop_scale)}: "
            "for example [0.2, 1.0]"
        )
    return recipe


def _read(path: Path, parents: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in parents:
        raise InputError(f"expected recipes that end, but {path} extends itself: take it out of `extends`")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the recipe {path} ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"expected TOML in {path}, but got {str(error)!r}: mend that line") from None
    bases = table.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise InputError(f'expected extends = "FILE" or a list of files in {path}, but got {bases!r}: mend it')
    merged: dict[str, Any] = {}
    for base in bases:
        merged = _merged(merged, _read(path.parent / base, (*parents, path.resolve())))
    return _merged(merged, table)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {key for key in above if isinstance(above[key], dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **{key: _merged(below[key], above[key]) for key in both}}


def _change(table: dict[str, Any], text: str) -> None:
    """Put one change in place; its value is TOML, or else the text itself."""
    name, equals, value = text.partition("=")
    *tables, key = name.strip().split(".")
    if not equals or not tables or not all((*tables, key)):
        raise InputError(f"expected a change as TABLE.KEY=VALUE, but got {text!r}: for example pretrain.epochs=20")
    for part in tables:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"expected a table before the last dot of {name!r}, but {part!r} is a value: mend it")
    try:
        table[key] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[key] = value


def _filled(kind: type[T], table: Any, where: str) -> T:
    if not isinstance(table, dict):
        raise InputError(f"expected a table [{where}] in the recipe, but got {table!r}: mend it")
    hints = get_type_hints(kind)
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        name = f"{where}.{key}" if where else key
        if key not in known:
            raise InputError(f"unknown key {name!r} in the recipe: {nearest(key, known)}")
        values[key] = _checked(hints[key], value, name, known[key].metadata)
    return kind(**values)


def _checked(kind: Any, value: Any, name: str, bounds: Mapping[str, float]) -> Any:
    if dataclasses.is_dataclass(kind):
        return _filled(kind, value, name)  # type: ignore[arg-type]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise InputError(
                f"expected a known value of {name}, but got {value!r}: {nearest(str(value), get_args(kind))}"
            )
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InputError(f"expected a list for {name}, but got {value!r}: for example {name} = [1, 2]")
        return tuple(_checked(get_args(kind)[0], part, name, bounds) for part in value)
    plain: type = dict if kind == Mapping[str, Any] else kind
    if plain is float and type(value) is int:
        value = float(value)
    if type(value) is not plain:
        words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a table"}
        raise InputError(f"expected {words[plain]} for {name}, but got {value!r}: mend the recipe")
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise InputError(f"expected a finite number for {name}, but got {value}: mend the recipe")
    for bound, broken in BOUNDS.items():
        if bound in bounds and broken(value, bounds[bound]):
            raise InputError(f"expected {name} {bound} {bounds[bound]:g}, but got {value}: mend the recipe")
    return value
