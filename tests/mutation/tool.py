"""Mutants made by the operators of cosmic-ray 8.

Its operators are used as a library. Its own runner starts a process and a test command for each
mutant, which takes seconds where a fork of a warm process takes none.

Left out of its operators, and why:

- comparisons but the negation and the boundary of each: ``is`` made ``<`` raises TypeError, which
  anything notices;
- binary operators but ``+`` and ``-``: what looks like ``|`` are unions in annotations, what looks
  like ``*`` are the stars of signatures;
- unary operators but the removal of ``not`` and of a sign, for the same reason as comparisons;
- VariableReplacer and VariableInserter, which put random numbers in, and need a name each;
- decorators of classes, which are no part of a function: ``@final`` says something to a type
  checker, and without ``@attrs.frozen`` nothing can be made at all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from importlib import import_module

from mutation.planted import Library, Mutant, fingerprint, make, units

OPERATORS = (
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ZeroIterationForLoop",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
)
"""The operators of cosmic-ray's provider ``core`` that are used."""

RAISED = "CosmicRayTestingException"
"""The name that ExceptionReplacer puts into handlers; a child defines it."""


def mutants(library: Library, modules: Sequence[str]) -> Iterator[Mutant]:
    """All mutants of some modules; of several that do the same, the first; none that changes nothing."""
    logging.getLogger("stevedore").setLevel(logging.CRITICAL)
    # It has no types, and is installed only where mutants are made.
    reading, mutating, plugins = (import_module(f"cosmic_ray.{name}") for name in ("ast", "mutating", "plugins"))
    operators = {name: plugins.get_operator(f"core/{name}")() for name in OPERATORS}
    for module in modules:
        source = library.source(module)
        lines = source.splitlines(keepends=True)
        seen = {fingerprint(compile(source, module, "exec"))}
        numbers: dict[tuple[str, str], int] = {}
        for unit in units(source):
            text = unit.text(lines)
            assert unit.replaced(lines, text) == source, (module, unit)
            nodes = list(reading.ast_nodes(reading.get_ast(text)))
            for name, operator in operators.items():
                for occurrence in range(sum(len(list(operator.mutation_positions(node))) for node in nodes)):
                    try:
                        changed = mutating.mutate_code(text, operator, occurrence)
                    except AttributeError:
                        continue  # cosmic-ray knows no dotted name in a tuple of exceptions
                    # Of a dotted name by itself it replaces the dot.
                    changed = re.sub(rf"\w*{RAISED}\w*", RAISED, changed)
                    # Counted by name: the statements of a class's body share one.
                    number = numbers[unit.name, name] = numbers.get((unit.name, name), 0) + 1
                    mutated = unit.replaced(lines, changed)
                    try:
                        print_of = fingerprint(compile(mutated, module, "exec"))
                    except SyntaxError:
                        continue
                    if print_of not in seen:
                        seen.add(print_of)
                        yield make(module, source, mutated, unit, name, number)
