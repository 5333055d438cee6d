"""Error messages with the caller's names of arguments, and checks of arguments that the library does not see."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from ._costs import COSTS

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")

MOST = (1 << 31) - 1
"""The largest value of the library's options that are whole numbers."""

UNEQUAL_TOTALS = "a solve with penalty_a or penalty_b"
"""The library's words for a solve that takes unequal totals."""
UNEQUAL_TOTALS_OF_EXACT = "a solve with penalty_a, penalty_b or mass"
"""The same for exact transport."""
_UNEQUAL_PENALTIES = "as penalty_a is"

_EVERYWHERE = {
    "threads": "n_threads",
    "tolerance": "tol",
    "iterations": "max_iter",
    "rounds": "max_iter",
    "p": "a",
    "q": "b",
}
_SOLVE = {
    **_EVERYWHERE,
    "eps": "reg",
    "quadratic": "reg",
    "eps_relative": "reg: 'auto', eps_relative",
    "penalty_a": "unbalanced",
    "penalty_b": "unbalanced",
    UNEQUAL_TOTALS: "unbalanced",
    UNEQUAL_TOTALS_OF_EXACT: "unbalanced or mass",
    _UNEQUAL_PENALTIES: "on both sides",
    "f": "potentials_init: f",
    "g": "potentials_init: g",
    **{name: f"potentials_init: {name}" for name in ("f_aa", "g_aa", "f_bb", "g_bb")},
    "u": "potentials_init: f",
    "v": "potentials_init: g",
}
MATRIX = {**_SOLVE, "cost": "M", "C": "M"}
"""The caller's names of the library's fields, in functions that take a cost matrix as POT's solve() does."""
POINTS = {**_SOLVE, "x": "X_a", "y": "X_b", "cost_function": "metric", "labels": "labels_x"}
"""The same for functions that take points as POT's solve_sample() does."""
CLOUDS = {**POINTS, "x": "x", "y": "y", "X_a": "x", "X_b": "y"}
"""The same for functions whose points are x and y."""
REGULARIZED = {
    **_EVERYWHERE,
    "u": "potentials_init: u",
    "v": "potentials_init: v",
    "plan": "plan_init",
    "pair_groups": "groups",
    "x": "X_a",
    "y": "X_b",
    "cost": "M",
    "C": "M",
    "labels": "labels_x",
}
"""The same for solve_regularized() and its batches, whose terms have the library's names."""

GROMOV = {
    **_EVERYWHERE,
    "eps": "reg",
    "x": "X_a",
    "y": "X_b",
    "source": "Ca",
    "target": "Cb",
    "cost": "M",
    "cross_moment": "plan_init",
    "marginals": "unbalanced_type",
    "penalty_a": "unbalanced",
    "penalty_b": "unbalanced",
    "mass": "unbalanced",
}
"""The same for Gromov-Wasserstein transport."""

_FIRST = re.compile(r"(problem \d+: )?((?:(?:xy|xx|yy): )?)([\w.]+(?:, [\w.]+)*):")
_OTHER = re.compile(rf"\b(?:(?:row|column) )?of (\w+)\b|{UNEQUAL_TOTALS}|{UNEQUAL_TOTALS_OF_EXACT}|{_UNEQUAL_PENALTIES}")
_NO_OPTION = re.compile(r"(?:.* multiple values for keyword argument ')?(tol|max_iter)(?:'|: is no option)")
_UNKNOWN = re.compile(r"(\w+): (?P<what>is no option[^;]*); options are (?P<known>[^;]*)(?P<rest>.*)")
_WRONG_VALUE = re.compile(r"(.*?: is '([^']*)'); must be (?:one of )?([^;]*)(.*)")
_NO_ARGUMENT = re.compile(r".*\(\) got an unexpected keyword argument '(\w+)'")
_NO_WEIGHTS = re.compile(r"a: (?:has shape \((.*?),?\); must be a vector|is 'auto'; must be an array of numbers)")
_OF_POINTS = ("solve", "solve_exact", "solve_regularized")
"""Functions of costs M that have a namesake for points, with "_sample" at its end."""
_ELSEWHERE = {
    **dict.fromkeys(("epsilon", "blur"), "reg"),
    **dict.fromkeys(("tau", "tau_a", "tau_b", "reg_m", "reach"), "unbalanced"),
    **dict.fromkeys(("stopThr", "threshold"), "tol"),
    **dict.fromkeys(("numItermax", "numIterMax", "max_iterations"), "max_iter"),
    **dict.fromkeys(("warmstart", "init"), "potentials_init"),
    "num_threads": "n_threads",
    "certificate": "gap",
    "p": "norm_p",
    "gpu": "cuda",
}
"""Names of arguments and values in POT, GeomLoss, OTT-JAX and PyTorch, which no rule of spelling finds."""


def calls(**names: str) -> Callable[[Callable[_Arguments, _Returned]], Callable[_Arguments, _Returned]]:
    """Makes the errors of a function name its own arguments: `names` maps fields of the library to them.

    A message begins with its field, in a batch after "problem 3: ". An option that the caller gave by the library's
    name keeps that name. The exception object stays the same. Where a function calls `tol` or `max_iter` of solve() by
    another name, the error about an unknown option gives that name.
    """

    def decorate(function: Callable[_Arguments, _Returned]) -> Callable[_Arguments, _Returned]:
        @functools.wraps(function)
        def call(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Returned:
            try:
                return function(*arguments, **keywords)
            except (ValueError, TypeError, NotImplementedError) as error:
                unknown = _NO_OPTION.match(str(error))
                if unknown is not None and unknown[1] in names:
                    error.args = (f"{unknown[1]}: is no option; must be given as {names[unknown[1]]}",)
                say_nearest(error, function, keywords, names)
                rename(error, {field: name for field, name in names.items() if field not in keywords})
                say_place(error, function, arguments)
                say_rounding(error, _weights(function, arguments, keywords))
                raise

        return call

    return decorate


def say_nearest(
    error: Exception, function: Callable[..., Any], keywords: Iterable[str], names: Mapping[str, str]
) -> None:
    """Adds the name that may be meant to an error about an unknown option or argument of the function, or about a value.
    The list of options has the function's own arguments where these stand for options of the library, by `names`."""
    _say_nearest_value(error)
    arguments = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.kind is not one.VAR_KEYWORD and name != "self"
    ]
    unknown, none = _UNKNOWN.fullmatch(str(error)), _NO_ARGUMENT.match(str(error))
    if unknown is not None:
        name, what, known, rest = unknown.groups()
        of_library = re.split(", | and ", known)
        of_points = COSTS if "metric" in arguments and "stopThr" not in arguments else ()  # POT's functions have none.
        # In a function without max_iter, rounds may be meant by it.
        meant = {names[option]: option for option in of_library if option in names}
        meant |= {option: option for option in (*arguments, *of_points, *of_library)}
        nearest = meant.get(nearest_name(name, list(meant)), name)
        listed = ", ".join(dict.fromkeys(v if (v := names.get(k)) in arguments else k for k in of_library))
        hint = "; options" if nearest == name else f"; did you mean {nearest}? Options"
        error.args = (f"{name}: {what}{hint} are {listed}{rest}",)
    elif none is not None and none[1] in keywords and none[1] not in arguments:
        nearest = nearest_name(none[1], arguments)
        hint = f"; did you mean {nearest}?" if nearest else f"; arguments are {', '.join(arguments)}"
        called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        error.args = (f"{none[1]}: is no argument of {called}(){hint}",)


def _say_nearest_value(error: Exception) -> None:
    """Adds the value that may be meant to an error about a name that is none of several."""
    wrong = _WRONG_VALUE.fullmatch(str(error))
    if wrong is None:
        return
    begin, given, allowed, rest = wrong.groups()
    values = [value.strip("'") for value in re.split(", | or ", allowed)]
    by_lower = {value.lower(): value for value in values if re.fullmatch(r"[\w-]+", value)}
    nearest = nearest_name(given.lower(), list(by_lower)) if len(by_lower) > 1 else ""
    if nearest and by_lower[nearest] != given:
        error.args = (f"{begin}; did you mean {by_lower[nearest]!r}? Must be {allowed}{rest}",)


def say_place(error: Exception, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Adds a hint to an error about `a` where its place in the call holds eps, or points beside points."""
    found = _NO_WEIGHTS.fullmatch(str(error))
    names = list(inspect.signature(function).parameters)
    if found is None or "a" not in names[1 : len(arguments)]:
        return
    shape = (found[1] or "").split(", ")
    if not found[1] and "reg" in names:
        error.args = (f"{error}; the regularisation is given by its name: reg={shown(arguments[names.index('a')])}",)
    elif len(shape) == 2 and names[0] == "M" and function.__name__ in _OF_POINTS:
        error.args = (f"{error}; points are arguments of {function.__name__}_sample(x, y)",)


def nearest_name(given: str, known: Sequence[str]) -> str:
    """The known name that is likely to be meant, or an empty string."""
    if _ELSEWHERE.get(given) in known:
        return _ELSEWHERE[given]
    # difflib finds no exchanged letters of a short name, and not the rest of a long one.
    others = (v for v in known if sorted(v) == sorted(given) or len(given) > 2 and v.startswith(given))
    return [*difflib.get_close_matches(given, known, 1, 0.7), *sorted(others, key=len), ""][0]


def _weights(function: Callable[..., Any], arguments: Any, keywords: Mapping[str, Any]) -> Iterator[Any]:
    """The weights among the arguments of a call, one by one where they are those of a batch."""
    given = inspect.signature(function).bind(*arguments, **keywords).arguments
    for side in (given.get(name) for name in "abpq"):
        yield from side if isinstance(side, (list, tuple)) else [side]


def rename(error: Exception, names: Mapping[str, str], problem: int | None = None) -> None:
    """Puts the caller's names into an error message of the library, and the number of the `problem` of a batch."""
    message = error.args[0] if len(error.args) == 1 else None
    first = _FIRST.match(message) if isinstance(message, str) else None
    if first is None:
        return
    batch, part, field = first.groups()
    batch = batch or ("" if problem is None else f"problem {problem}: ")
    # In a divergence of costs, "xx: cost" is the argument M_aa, and "xy: a" is a.
    name = names.get(part + field) or ", ".join(names.get(each, each) for each in field.split(", "))
    rest = _OTHER.sub(lambda found: _other(found, names), first.string[first.end() :])
    error.args = (f"{batch}{name}:{rest}",)


def _other(found: re.Match[str], names: Mapping[str, str]) -> str:
    """The caller's words for another argument in a message: "of x", "row of C", or a phrase about penalties."""
    name = found[1] or ""
    return names.get(found[0]) or found[0].removesuffix(name) + names.get(name, name)


def say_rounding(error: Exception, weights: Iterable[Any]) -> None:
    """Adds a hint to an error about unequal totals: rounding weights to half precision changes their totals."""
    if "; must equal the total of " not in str(error) or "float32" in str(error):  # The hint of an inner function.
        return
    names = {str(getattr(v, "dtype", "")).removeprefix("torch.") for v in weights}
    rounded = " and ".join(sorted(names & {"float16", "bfloat16"}))
    if rounded:
        error.args = (f"{error}; weights in {rounded} are rounded: divide them by their totals in float32",)


def shown(value: Any) -> str:
    """A wrong value as messages show it: the value where it is short, else its shape or type."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape != () and hasattr(value, "dtype"):  # A result has a shape, too.
        return f"an array of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"of type {type(value).__name__}"


def refuse_gradient(field: str, value: Any) -> None:
    """NotImplementedError for a tensor that requires a gradient, as an argument without derivatives."""
    if not isinstance(value, (float, int, str)) and getattr(value, "requires_grad", False):
        raise NotImplementedError(f"{field}: requires a gradient; results have no derivatives by it: detach it")


def number(field: str, value: Any) -> float:
    """The value as a float, from a number or an array without dimensions."""
    if isinstance(value, float):
        return value
    refuse_gradient(field, value)
    if not isinstance(value, (str, bytes, bool)) and getattr(value, "shape", ()) == ():
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise TypeError(f"{field}: is {shown(value)}; must be a number")


def whole(field: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    try:
        found = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{field}: is {shown(value)}; must be a whole number")
    if found < least or (most is not None and found > most):
        raise ValueError(f"{field}: is {found}; must be {f'>= {least}' if most is None else f'from {least} to {most}'}")
    return found


def truth(field: str, value: Any) -> bool:
    """The value as a bool, from True, False or a whole number."""
    try:
        return operator.index(value.item() if getattr(value, "shape", None) == () else value) != 0
    except TypeError:
        raise TypeError(f"{field}: is {shown(value)}; must be True or False") from None


def lower_name(field: str, value: Any, what: str = "a name") -> str:
    """A name in lower case."""
    if callable(value) or isinstance(value, (tuple, list)) and value and all(map(callable, value)):
        raise NotImplementedError(f"{field}: is a function; must be {what}")
    if not isinstance(value, str):
        raise TypeError(f"{field}: is {shown(value)}; must be {what}")
    return value.lower()
