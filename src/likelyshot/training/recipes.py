"""Recipes: everything that decides a training run, as typed TOML in which a wrong key or type is an error."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from likelyshot.data.files import convert
from likelyshot.encoders.pixels import Preparation
from likelyshot.errors import InputError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

#: The parts of recipes that come with the package: data sets, encoders, metrics, and some complete recipes.
PARTS = Path(__file__).parent / "parts"

MAX_FILES = 100  # files that a recipe may be made of
MAX_BYTES = 100_000  # of a file
MAX_LINE = 2_000  # characters of a line: tomllib takes time with the square of the dots of a key

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Rate = Annotated[float, Meta(ge=1e-12, le=1e6)]
Temperature = Annotated[float, Meta(ge=1e-6, le=1e6)]
Params = dict[str, bool | int | float | str | list[bool | int | float | str]]


class RecipeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a recipe."""


class Data(Preparation, frozen=True, forbid_unknown_fields=True):
    """Where the images or the cached features are (give `path` or `features`), and how pixels become input."""

    path: str = ""  # a folder or zip of class folders, or of images listed in CSV splits
    splits: str = ""  # a packaged split such as "cub", a JSON file, or a folder of train.csv, val.csv, test.csv
    features: str = ""  # instead of images: a features file with splits train, val and test
    skip_unreadable: bool = False
    cache: str = ""  # a folder for the decoded pixels, which are mapped from there; without it they stay in memory


class EncoderChoice(RecipeTable, frozen=True):
    """Which encoder, and what it starts from."""

    name: str = ""
    params: Params = {}
    weights: str = ""  # a checkpoint of the same encoder; otherwise the weights are drawn by run.seed


class Augmentation(RecipeTable, frozen=True):
    """What happens to training images; see `likelyshot.training.augment`."""

    crop_scale: tuple[float, ...] = ()  # share of the area of a random resized crop, smallest and largest
    padding: Annotated[int, Meta(ge=0, le=4_096)] = 0  # pixels around the image for a random crop of its own size
    flip: bool = True
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0  # brightness, contrast and saturation vary by this share


class Optimisation(RecipeTable, frozen=True):
    """How weights are fitted, in either stage."""

    epochs: Annotated[int, Meta(ge=0, le=100_000)] = 0
    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: Rate = 0.1
    momentum: Share = 0.9  # of sgd, like nesterov
    nesterov: bool = False
    weight_decay: Annotated[float, Meta(ge=0, le=1e6)] = 5e-4
    schedule: Literal["constant", "cosine", "step", "onecycle"] = "cosine"
    milestones: tuple[Annotated[int, Meta(ge=0)], ...] = ()  # epochs after which "step" multiplies lr by `decay`
    decay: Annotated[float, Meta(gt=0, le=1)] = 0.1
    augment: bool = True
    patience: Annotated[int, Meta(ge=0)] = 0  # stop after so many epochs without a better validation accuracy; 0: never


class Pretrain(Optimisation, frozen=True):
    """Stage 1: cross entropy over the training classes."""

    batch_size: Count = 128
    label_smoothing: Share = 0.0


class Finetune(Optimisation, frozen=True):
    """Stage 2: episodes, scored by a metric."""

    lr: Rate = 1e-4
    metric: str = "mll"
    params: Params = {}  # of the metric; the default of lambda_max is 100 here
    ways: Annotated[int, Meta(ge=2, le=1_000_000)] = 5
    shots: Count = 1
    queries: Count = 15  # per class
    episodes: Count = 100  # per epoch
    episodes_per_step: Count = 1
    temperature: Temperature = 1.0  # scores are divided by it
    learn_temperature: bool = False  # from that start, with head_lr
    head_lr: Rate = 1e-3  # also of the trained head of a metric that has one
    head: Params = {}  # parameters of that head
    head_weights: str = ""  # a checkpoint whose Conv4 is the network that the head of maml starts from
    regulariser: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # weight of the head's further loss, where it has one
    clip: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # largest norm of the gradient; 0: any
    label_smoothing: Share = 0.0
    alpha: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # of Dirichlet numbers of queries; 0: the same for every class


class Validate(RecipeTable, frozen=True):
    """Few-shot accuracy on the validation classes, after every epoch."""

    method: str = ""  # default: finetune.metric
    params: Params = {}
    ways: Annotated[int, Meta(ge=2, le=1_000_000)] = 5
    shots: Count = 1
    queries: Count = 15
    alpha: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # as in finetune
    tasks: Count = 1_000
    seed: Seed = 0


class Run(RecipeTable, frozen=True):
    """Where and how it runs."""

    seed: Seed = 0
    output: str = ""  # default: runs/ and the names of the recipe's parts
    precision: Literal["auto", "32", "bf16"] = "auto"  # auto: bf16 where an accelerator has it
    checkpoint_seconds: Annotated[float, Meta(ge=0, le=1e9)] = 60.0  # 0: after every step
    log_steps: Count = 50
    sync_batchnorm: bool = False  # processes on CUDA devices normalise by the batches of all of them


class Recipe(RecipeTable, frozen=True):
    """A training run."""

    data: Data = Data()
    encoder: EncoderChoice = EncoderChoice()
    augmentation: Augmentation = Augmentation()
    pretrain: Pretrain = Pretrain()
    finetune: Finetune = Finetune()
    validate: Validate = Validate()
    run: Run = Run()

    def to_dict(self) -> dict[str, Any]:
        """Return all values, defaults included, as plain JSON."""
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return document


def load_recipe(parts: str | Path | Sequence[str | Path], changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe, apply the changes to it, and check it.

    Args:
        parts: One or more parts; later ones override earlier ones. A part is the name of one that comes with the
            package, such as "resnet12", or the path of a TOML file: with the suffix .toml, or with a separator.
        changes: "TABLE.KEY=VALUE", with VALUE in TOML or as plain text. They override the parts.

    >>> recipe = load_recipe(["mini_imagenet", "resnet12", "mll"], ["data.path=images", "pretrain.epochs=20"])
    >>> recipe.pretrain.epochs, recipe.finetune.metric, recipe.run.output
    (20, 'mll', 'runs/mini_imagenet_resnet12_mll')
    """
    paths = [_path(part, Path()) for part in ([parts] if isinstance(parts, (str, Path)) else parts)]
    files: dict[Path, dict[str, Any] | None] = {}
    try:
        table: dict[str, Any] = {}
        for path in paths:
            table = _merged(table, _read(path, files))
        for text in changes:
            table = _merged(table, _change(text))
    except RecursionError:
        raise InputError("the recipe is nested too deeply: remove the inner tables and lists") from None
    recipe = recipe_from(table)
    if not recipe.run.output:
        output = "runs/" + "_".join(path.stem for path in paths)
        recipe = msgspec.structs.replace(recipe, run=msgspec.structs.replace(recipe.run, output=output))
    try:
        recipe.to_dict()
    except UnicodeEncodeError as error:
        raise InputError(
            f"expected names in UTF-8 in the recipe, got {error.object[:80]!r}: rename that file or folder"
        ) from None
    return recipe


def recipe_from(table: Mapping[str, Any]) -> Recipe:
    """Check a table against the types of `Recipe`. A whole number is taken for text where text is expected.

    >>> table = {"data": {"path": "images"}, "encoder": {"name": "conv4"}, "pretrain": {"epochs": 3}}
    >>> recipe_from(table).pretrain.lr
    0.1
    >>> recipe_from({"pretrain": {"epoch": 3}})
    Traceback (most recent call last):
    likelyshot.errors.InputError: unknown key 'pretrain.epoch' in the recipe: did you mean 'epochs'? Known: ...
    """
    recipe = convert(Recipe, _with_text(table), "the recipe")
    if bool(recipe.data.path) == bool(recipe.data.features):
        got = "both: leave one out, as in --set data.features=" if recipe.data.path else "neither"
        remedy = "" if recipe.data.path else ": give one of them, as in --set data.path=IMAGES"
        raise InputError(f"expected either data.path or data.features in the recipe, got {got}{remedy}")
    if not recipe.encoder.name:
        raise InputError("encoder.name is missing in the recipe: give it, for example with --set encoder.name=resnet12")
    if recipe.pretrain.epochs == recipe.finetune.epochs == 0:
        raise InputError("pretrain.epochs and finetune.epochs are both 0, so nothing would be trained: raise one")
    for name, settings in (("pretrain", recipe.pretrain), ("finetune", recipe.finetune)):
        if settings.nesterov and not settings.momentum:
            raise InputError(f"{name}.nesterov needs a momentum above 0, got 0: change one of them")
    scale = recipe.augmentation.crop_scale
    if scale and not (len(scale) == 2 and 0 < scale[0] <= scale[1] <= 1):
        raise InputError(
            f"expected augmentation.crop_scale as [smallest, largest] with 0 < smallest <= largest <= 1, got "
            f"{list(scale)}: change it, for example to [0.2, 1.0]"
        )
    if scale and recipe.augmentation.padding:
        raise InputError("augmentation.crop_scale and augmentation.padding are two kinds of crop: give one of them")
    return recipe


def _takes_text(*name: str) -> bool:
    """Tell whether a key of a recipe holds text.

    >>> _takes_text("run", "precision"), _takes_text("data", "path"), _takes_text("run", "seed"), _takes_text("run")
    (True, True, False, False)
    """
    kind: Any = Recipe
    for key in name:
        kind = get_type_hints(kind).get(key) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None
    return kind is str or get_origin(kind) is Literal


def _with_text(table: Mapping[str, Any]) -> dict[str, Any]:
    """Write whole numbers as text where text is expected, as in precision = 32."""
    return {
        name: {
            key: str(value) if type(value) is int and _takes_text(name, key) else value for key, value in part.items()
        }
        if isinstance(part, dict)
        else part
        for name, part in table.items()
    }


def _path(part: str | Path, folder: Path) -> Path:
    """Find a part: a path, relative to the folder, if it looks like one; otherwise one of the package by its name."""
    text = str(part)
    if text.endswith(".toml") or "/" in text or "\\" in text:
        return folder / text
    known = [path.stem for path in PARTS.glob("*.toml")]
    if text not in known:
        raise InputError(
            f"unknown recipe {text[:80]!r}: {nearest(text[:80], known)}. For a file of your own, give a path that ends "
            "in .toml"
        )
    return PARTS / f"{text}.toml"


def _read(path: Path, files: dict[Path, dict[str, Any] | None]) -> dict[str, Any]:
    """Read a file and those that it extends; `files` has what was read, and None for what is being read."""
    path = _regular(path)
    if path in files:
        if (known := files[path]) is None:
            raise InputError(f"the recipe {path} extends itself: remove it from `extends`")
        return known
    if len(files) == MAX_FILES:
        raise InputError(f"the recipe is made of more than {MAX_FILES} files: extend fewer")
    files[path] = None
    table = _parse(path)
    bases = table.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise InputError(
            f'expected extends = "FILE" or a list of files in {path}, got {reprlib.repr(bases)}: change it'
        )
    merged: dict[str, Any] = {}
    for base in bases:
        merged = _merged(merged, _read(_path(base, path.parent), files))
    files[path] = merged = _merged(merged, table)
    return merged


def _regular(path: Path) -> Path:
    try:
        if path.is_file():  # a pipe would wait for ever
            return path.resolve()
        reason = "it is not a regular file" if path.exists() else "it does not exist"
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = getattr(error, "strerror", None) or str(error)
    raise InputError(f"cannot read the recipe {str(path)[:200]!r} ({reason}): check the path")


def _parse(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES or max(map(len, content.splitlines()), default=0) > MAX_LINE:
            raise InputError(
                f"expected a recipe of at most {MAX_BYTES:,} bytes with lines of at most {MAX_LINE:,}, got a longer "
                f"one in {path}: check the path"
            )
        table: dict[str, Any] = tomllib.loads(content.decode())
        return table
    except OSError as error:
        raise InputError(f"cannot read the recipe {path} ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML ({error}): correct that line") from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {key for key in above if isinstance(above[key], dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **{key: _merged(below[key], above[key]) for key in both}}


def _change(text: str) -> dict[str, Any]:
    """Read one change as a table; its value is TOML, or else the text itself.

    >>> _change("run.seed=3"), _change("run.precision=32"), _change("run.output=2026-11-18")
    ({'run': {'seed': 3}}, {'run': {'precision': '32'}}, {'run': {'output': '2026-11-18'}})
    """
    name, equals, value = text.partition("=")
    *tables, key = name.strip().split(".")
    if not equals or not tables or not all((*tables, key)):
        raise InputError(f"expected a change as TABLE.KEY=VALUE, got {text[:80]!r}: for example pretrain.epochs=20")
    try:
        change: dict[str, Any] = {key: tomllib.loads(f"value = {value}")["value"]}
    except tomllib.TOMLDecodeError:
        change = {key: value}
    if not isinstance(change[key], (str, list, dict)) and _takes_text(*tables, key):
        change = {key: value.strip()}  # a number, or a date, that stands for itself
    for part in reversed(tables):
        change = {part: change}
    return change
