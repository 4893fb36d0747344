"""From a method's name to a method that can run: its facts, its parameters, and the statistics that it needs."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from likelyshot.errors import InputError, nearest
from likelyshot.methods import FACTS, METHODS, Method
from likelyshot.methods.facts import STATISTICS, Facts, Variant

Params = Mapping[str, Any]


def function_of(method: Callable[..., Any]) -> Callable[..., Any]:
    """Give the function behind `functools.partial`."""
    while isinstance(method, functools.partial):
        method = method.func
    return method


def name_of(method: Callable[..., Any]) -> str:
    """Name a method, seen through `functools.partial`."""
    function = function_of(method)
    return getattr(function, "__name__", type(function).__name__)


def is_ours(method: Method) -> bool:
    """Whether a method is one of ours, recognised by its function, whatever its name."""
    return any(known is function_of(method) for known in FACTS)


def facts_of(method: Method) -> Facts:
    """Give the facts about a method, recognised by its function, whatever its name.

    >>> facts_of(METHODS["tim"]).title, facts_of(lambda support, labels, query, *, n_ways: query).kind
    ('TIM-GD', 'transductive')
    """
    function = function_of(method)
    return next((facts for known, facts in FACTS.items() if known is function), Facts(name_of(method)))


def is_transductive(method: Method) -> bool:
    """Return whether the scores of a query may depend on the other queries; assumed of methods that are not ours."""
    return facts_of(method).kind == "transductive"


def variants() -> dict[str, tuple[str, Variant]]:
    """Give the rows that are methods with other parameters, by name: the method and what differs."""
    return {
        row: (name, variant) for name, method in METHODS.items() for row, variant in facts_of(method).variants.items()
    }


def titles() -> dict[str, str]:
    """Give what tables call every method and variant."""
    result = {name: facts_of(method).title for name, method in METHODS.items()}
    return result | {row: variant.title for row, (_, variant) in variants().items()}


def parameters_of(method: Callable[..., Any]) -> dict[str, Any]:
    """Give the keyword parameters with their defaults, or what `functools.partial` gave them.

    >>> from likelyshot.methods.mll import mll
    >>> parameters_of(functools.partial(mll, lambda_max=80.0))
    {'lambda_max': 80.0, 'normalise': True, 'shrinkage': 0.0}
    """
    optional = takes_of(method)
    return {
        key: default
        for key, default in _keywords(method).items()
        if default is not inspect.Parameter.empty and key not in optional
    }


def takes_of(method: Callable[..., Any]) -> list[str]:
    """Give the statistics from other data that a method can do without, and that it was not given.

    >>> takes_of(METHODS["likelihood_mixture"]), takes_of(METHODS["bavardage"])
    (['base_within'], [])
    """
    return [key for key, default in _keywords(method).items() if key in STATISTICS and default is None]


def needs_of(method: Callable[..., Any]) -> list[str]:
    """Give the keywords without a default: statistics from other data.

    >>> from likelyshot.methods.simpleshot import simpleshot
    >>> needs_of(simpleshot)
    ['base_mean']
    """
    return [key for key, default in _keywords(method).items() if default is inspect.Parameter.empty and key != "n_ways"]


def _keywords(method: Callable[..., Any]) -> dict[str, Any]:
    keywords = inspect.signature(method).parameters.values()
    return {keyword.name: keyword.default for keyword in keywords if keyword.kind is keyword.KEYWORD_ONLY}


def parameters(name: str) -> dict[str, Any]:
    """List the parameters of a method with their defaults, those of its statistics among them.

    >>> parameters("mll")
    {'lambda_max': None, 'normalise': True, 'shrinkage': 0.0}
    """
    through = {key: value for need in needs(name) for key, value in _statistic_params(need).items()}
    return parameters_of(METHODS[plain_name(name)]) | through


def needs(name: str) -> list[str]:
    """List the statistics that a method needs from other data.

    >>> needs("simpleshot"), needs("mll")
    (['base_mean'], [])
    """
    plain, colon, _ = name.partition(":")
    if plain not in METHODS:
        raise InputError(f"unknown method {name!r}: {nearest(plain, METHODS)}")
    needed = needs_of(METHODS[plain])
    if colon and "head" not in needed:
        raise InputError(f"expected the name of a method, got {name!r}: only methods with a trained head take a file")
    return needed


def plain_name(name: str) -> str:
    """Give the method of a name that may also say which checkpoint has its head.

    >>> plain_name("feat:runs/feat/best.safetensors"), plain_name("mll")
    ('feat', 'mll')
    """
    return name.partition(":")[0]


def row_name(name: str) -> str:
    """Name a method in a table: one with a head of a certain checkpoint by the file, or by the folder of a run.

    >>> row_name("feat:runs/birds/best.safetensors"), row_name("feat:mine.safetensors"), row_name("mll")
    ('feat (birds)', 'feat (mine)', 'mll')
    """
    plain, _, file = name.partition(":")
    path = Path(file)
    of_run = path.stem in ("best", "last", "features") and path.parent.name
    return f"{plain} ({path.parent.name if of_run else path.stem})" if file else plain


def statistics_of(name: str) -> list[str]:
    """List the statistics that a method needs or takes from other data.

    >>> statistics_of("bavardage"), statistics_of("likelihood_mixture")
    (['base_mean', 'base_within'], ['base_within'])
    """
    return [*needs(name), *takes_of(METHODS[plain_name(name)])]


def _statistic_params(need: str) -> Params:
    return STATISTICS[need].params if need in STATISTICS else {}


def about(name: str) -> dict[str, Any]:
    """Describe a method: what it does, what it needs, its parameters and its paper."""
    defaults, method = parameters(name), METHODS[plain_name(name)]
    text = inspect.getdoc(method) or ""
    lines = text.splitlines()
    return {
        "method": plain_name(name),
        "does": lines[0] if lines else "",
        "needs": needs(name),
        "takes": takes_of(method),
        "non_negative": facts_of(method).non_negative,
        "parameters": defaults,
        "paper": next((line.removeprefix("Paper: ") for line in lines if line.startswith("Paper: ")), ""),
        "text": text.split(">>>")[0].strip(),
    }


def parse(name: str, key: str, text: str) -> Any:
    """Read a parameter's value from text, by the type of its default.

    >>> parse("mll_transductive", "iterations", "5"), parse("mll", "normalise", "no")
    (5, False)
    >>> parse("pt_map", "marginals", "0.2,0.8"), parse("pt_map", "marginals", "estimated")
    ((0.2, 0.8), 'estimated')
    """
    known = parameters(name)
    if key not in known:
        raise InputError(f"{name} has no parameter {key!r}: {nearest(key, known)}")
    kind: type = float if known[key] is None else type(known[key])  # None: by default it follows from the task
    switch = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    parts = [part.strip() for part in text.split(",")]
    try:
        if kind is bool:
            return switch[text.lower()]
        if kind is tuple:
            return tuple(parts)
        if kind is str:
            return tuple(map(float, parts)) if len(parts) > 1 else text
        return kind(text)
    except (ValueError, KeyError):
        words = {bool: "yes or no", int: "a whole number", float: "a number", str: "a word, or numbers like 0.2,0.8"}
        raise InputError(f"{key} of {name} must be {words[kind]}, got {text!r}: {_default(known[key])}") from None


def _default(value: Any) -> str:
    return "leave it out for the default" if value is None else f"its default is {value}"


def check_values(name: str, defaults: Params, params: Params) -> None:
    """Refuse values of another kind than the defaults.

    >>> check_values("mll", {"lambda_max": 40.0}, {"lambda_max": "80"})
    Traceback (most recent call last):
    likelyshot.errors.InputError: lambda_max of mll must be a number, got '80': its default is 40.0
    """
    for key in params.keys() & defaults.keys():
        value = params[key]
        kind, words = _KINDS.get(type(defaults[key]), (object, ""))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise InputError(f"{key} of {name} must be {words}, got {value!r:.80}: {_default(defaults[key])}")


#: What a value must be, by the type of the default. A default of None follows from the task and stands for a number.
_KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    type(None): (numbers.Real | None, "a number"),
    tuple: (Sequence, "several names"),
}


def check_params(name: str, defaults: Params, params: Params) -> None:
    """Refuse parameters that a method does not have, and values of another kind than the defaults."""
    for key in params:
        if key not in defaults:
            raise InputError(f"{name} has no parameter {key!r}: {nearest(str(key), defaults)}")
    check_values(name, defaults, params)


def bind(name: str, params: Params, statistics: Params | None = None) -> Method:
    """Give a method its parameters, the statistics that it needs, and those that it takes if they are known.

    >>> bind("mll", {"lambda_max": 80.0}).keywords
    {'lambda_max': 80.0}
    """
    needed, method, known_statistics = needs(name), METHODS[plain_name(name)], statistics or {}
    check_params(name, parameters_of(method), params)
    bound = dict(params) | {key: known_statistics[key] for key in takes_of(method) if key in known_statistics}
    for key in needed:
        bound[key] = known_statistics.get(key)
        if bound[key] is None:
            known = STATISTICS.get(key)
            lacks = f"{known.words}: {known.remedy}" if known else f"{key}: give it with functools.partial"
            raise InputError(f"{name} needs {lacks}")
    return functools.partial(method, **bound) if bound else method


def parse_methods(texts: Sequence[str]) -> list[str]:
    """Read names of methods, separated by commas or spaces; "all" is every method.

    >>> parse_methods(["mll,cosine", "mll"])
    ['mll', 'cosine']
    """
    names = [name for text in texts for name in _names(text)]
    if not names:
        raise InputError(f"expected the name of a method, got {', '.join(map(repr, texts))}: {nearest('', METHODS)}")
    if "all" in names:
        return list(METHODS)
    for name in names:
        needs(name)
    return list(dict.fromkeys(names))


def _names(text: str) -> list[str]:
    """Split a list of names; the path of a checkpoint after the name of a method stays whole."""
    return [text] if text.partition(":")[0] in METHODS else text.replace(",", " ").split()


def parse_params(names: Sequence[str], texts: Sequence[str], normalise: bool = True) -> dict[str, dict[str, Any]]:
    """Read NAME=VALUE, for every method that has such a parameter, and METHOD.NAME=VALUE into parameters by method.

    Without `normalise`, methods that can do without normalisation do.

    >>> parse_params(["mll", "cosine"], ["normalise=no", "mll.lambda_max=80"])
    {'mll': {'normalise': False, 'lambda_max': 80.0}, 'cosine': {'normalise': False}}
    """
    params: dict[str, dict[str, Any]] = {
        name: {"normalise": False} if not normalise and "normalise" in parameters(name) else {} for name in names
    }
    for text in texts:
        key, equals, value = text.partition("=")
        method, dot, key = key.strip().rpartition(".")
        if not equals or not key:
            raise InputError(f"expected a parameter as NAME=VALUE, got {text!r}: for example lambda_max=80")
        matching = [name for name in names if method in (name, plain_name(name))]
        if dot and not matching:
            raise InputError(f"{text!r} is for a method that is not evaluated: {nearest(method, names)}")
        takers = matching if dot else [name for name in names if key in parameters(name)]
        if not takers:
            known = {known for name in names for known in parameters(name)}
            raise InputError(f"no parameter {key!r} in {', '.join(names)}: {nearest(key, known)}")
        for name in takers:
            params[name][key] = parse(name, key, value.strip())
    return params


def parse_grid(name: str, texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read NAME=FIRST:LAST:STEP and NAME=A,B,C into the values of each parameter.

    >>> parse_grid("mll_transductive", ["eta=0.2:0.6:0.2", "iterations=1,10"])
    {'eta': [0.2, 0.4, 0.6], 'iterations': [1, 10]}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise InputError(
                f"expected a grid as NAME=FIRST:LAST:STEP or NAME=A,B,C, got {text!r}: for example lambda_max=20,40,80"
            )
        if key in grid:
            raise InputError(f"expected one list of values for {key}, got {key} twice: put all values in one list")
        grid[key] = [parse(name, key, value) for value in _points(text, values)]
        if len(set(grid[key])) < len(grid[key]):
            raise InputError(f"expected different values of {key}, got one twice in {text!r}: remove it")
    if len(grid) > 2:
        raise InputError(f"a sweep draws one or two parameters, got {', '.join(grid)}: fix the others with --param")
    return grid


def _points(text: str, values: str) -> list[str]:
    if ":" not in values:
        return [value.strip() for value in values.split(",")]
    try:
        first, last, step = (float(part) for part in values.split(":"))
        count = int((last - first) / step + 1e-9) + 1
        if count < 1 or count > 1_000:
            raise ValueError
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(
            f"expected FIRST:LAST:STEP with 1 to 1,000 points, got {text!r}: for example lambda_max=10:100:10"
        ) from None
    return [f"{first + step * i:.10g}" for i in range(count)]
