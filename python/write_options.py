"""Writes monge/_options.py: the library's options as types, from the lists in its headers.

usage: write_options.py FOLDER_OF_CORE OUTPUT
"""

import sys
from pathlib import Path

HEAD = '''"""The library's options by name. Written by the build, from visit_solve_options and the like."""

from typing import Literal, TypedDict

VERSION = "{}"
'''


def typed_dict(name: str, doc: str, options: list[tuple], base: str = "TypedDict") -> str:
    lines = [f"\n\nclass {name}({base}, total=False):", f'    """{doc}"""', ""]
    for option, kind, initial, choices, allowed, description in options:
        default = initial if option != "eps" or name == "GromovKeywordOptions" else "eps_relative sets it"
        annotation = f"Literal[{', '.join(map(repr, choices))}]" if choices else kind
        lines += [f"    {option}: {annotation}", f'    """{description} ({allowed}); by default {default}."""']
    return "\n".join(lines) + "\n"


folder, output = sys.argv[1:]
sys.path.insert(0, folder)
import _core  # noqa: E402

solve = _core.solve_option_list()
method = [option for option in solve if option[0] == "method"]
others = [option for option in solve if option[0] != "method"]
of_pot, of_gromov = [], []
for option in _core.gromov_option_list():
    (of_pot if option[0] in ("alpha", "method") else of_gromov).append(option)
Path(output).write_text(
    HEAD.format(_core.version())
    + typed_dict("KeywordOptions", "Options of a solve that are no arguments of POT's.", others)
    + typed_dict("SolveOptions", "Options of a solve, in units of the cost.", method, "KeywordOptions")
    + typed_dict("RegularizedOptions", "Options of a regularised solve.", _core.regularized_option_list())
    + typed_dict("ExactOptions", "Options of an exact solve.", _core.exact_option_list())
    + typed_dict("GromovKeywordOptions", "Options of solve_gromov() that are no arguments of POT's.", of_gromov)
    + typed_dict("GromovOptions", "Options of Gromov-Wasserstein transport.", of_pot, "GromovKeywordOptions")
    + typed_dict("ProjectionOptions", "Options of a projection.", _core.projection_option_list())
)
