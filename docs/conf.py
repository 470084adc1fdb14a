"""How Sphinx builds this documentation: ``python -W error -m sphinx -W -n docs docs/_build``, without a network."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.inspect import isgenericalias

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import trio_agent  # noqa: E402 - the source beside this folder comes first
import trio_agent.providers  # noqa: E402
import trio_agent.testing  # noqa: E402
import trio_agent.tools  # noqa: E402

PUBLIC = (trio_agent, trio_agent.providers, trio_agent.testing, trio_agent.tools)

project = "trio_agent"
author = "the authors of trio_agent"
project_copyright = "the authors of trio_agent (MIT licence)"
version = release = trio_agent.__version__

extensions = [
    "sphinx.ext.autodoc",  # the reference, out of the docstrings
    "sphinx.ext.napoleon",  # which are in Google's style
    "sphinx.ext.intersphinx",  # links to Python and Trio
    "sphinxcontrib_trio",  # shows `await f()` and `async with g()`
    "myst_parser",  # pages in Markdown
]
exclude_patterns = ["_build", "inventories"]
default_role = "obj"
nitpicky = True
# What Sphinx 9 has deprecated is still used by its own napoleon and by MyST; `python -W error` would end there.
warnings.filterwarnings("ignore", message=r".*(removed in Sphinx|Sphinx API modifications)")
napoleon_numpy_docstring = False
language = "en"

html_theme = "furo"
html_title = f"trio_agent {version}"
html_static_path = ["_static"]
html_css_files = ["own.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_default_options = {"members": True, "undoc-members": True}
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 90
napoleon_use_rtype = False
napoleon_use_ivar = True

# Only the names that the pages refer to; in the first format of inventories, which is plain text. Building
# needs no network this way, and a reference to a name that is not listed there is an error.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", "inventories/python.txt"),
    "trio": ("https://trio.readthedocs.io/en/stable/", "inventories/trio.txt"),
}
intersphinx_disabled_reftypes = ["std:*"]


# ------------------------------------------------- docstrings of re-exported names

_ALIASES: dict[str, str] = {}
"""Every public name, and every path under which an annotation may name it, to its public path."""


def _modules(package: Any) -> list[str]:
    names = []
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        last = info.name.rpartition(".")[2]
        # The plugins need pytest, which building these pages does not.
        if not last.startswith("_") or last.startswith("_plugin") or last in {"__main__", "_grep"}:
            continue
        names.append(info.name)
        if info.ispkg:
            names.extend(_modules(importlib.import_module(info.name)))
    return names


def _show_at_public_paths() -> None:
    """Let autodoc find what stands behind fields and aliases.

    The names carry their public path as ``__module__``, as in Trio; the strings behind attrs fields and
    aliases stand in the modules where they are written. So these are read for the package, too.
    """
    for package in PUBLIC:
        public = {name for name in vars(package) if not name.startswith("_")}
        whole = ModuleAnalyzer.for_module(package.__name__)
        whole.analyze()
        for name in _modules(package):
            part = ModuleAnalyzer.for_module(name)
            part.analyze()
            base = len(whole.tagorder)
            whole.attr_docs.update(part.attr_docs)
            whole.annotations.update(part.annotations)
            whole.tagorder.update({key: base + order for key, order in part.tagorder.items()})
            whole.overloads.update(part.overloads)
            _ALIASES.update({f"{name}.{each}": f"{package.__name__}.{each}" for each in public})
        _ALIASES.update({each: f"{package.__name__}.{each}" for each in public})


_DEFINITIONS: dict[str, str] = {}
"""What stands behind the aliases that autodoc shows without it."""


class _Shown:
    """An annotation that is shown as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __call__(self) -> None:
        """Let typing take it for a type."""


def _show_as_written() -> None:
    """Find the definitions of aliases, and keep the annotations of properties from being evaluated."""
    for package in PUBLIC:
        for name in _modules(package):
            for node in ast.parse(Path(str(importlib.import_module(name).__file__)).read_text("utf-8")).body:
                if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation) and node.value:
                    value = node.value.value if isinstance(node.value, ast.Constant) else ast.unparse(node.value)
                    _DEFINITIONS[f"{package.__name__}.{ast.unparse(node.target)}"] = str(value)
        for cls in filter(inspect.isclass, vars(package).values()):
            for member in vars(cls).values():
                getter = member.fget if isinstance(member, property) else None
                if getter is not None and isinstance(getter.__annotations__.get("return"), str):
                    getter.__annotations__["return"] = _Shown(getter.__annotations__["return"])


_show_at_public_paths()
_show_as_written()

# Annotations are shown as they are written: evaluated, an alias would fill three lines.


def _as_written(annotation: Any) -> Any:
    text = annotation if isinstance(annotation, str) else None
    return annotation if text is None else _Written(text.strip("'\""))


def _default(value: Any) -> Any:
    """A default that cannot be written as code (a factory, a function) is shown as three dots."""
    hidden = value is not inspect.Parameter.empty and (repr(value).startswith("<") or repr(value) == "NOTHING")
    return _Written("...") if hidden else value


_MADE_BY_THE_LIBRARY = {
    "Models",
    "AgentState",
    "EventStream",
    "ModelStream",
    "Probe",
    "StreamSink",
    "ToolContext",
    "TranscriptContext",
}
"""Classes that no user calls; their parameters are nobody's business."""


class _Written(str):
    """An annotation whose repr is its text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(*event: Any) -> tuple[str, str] | None:
    _, what, _, thing, _, signature, _ = event
    if signature is None or what not in ("function", "method", "class", "exception"):
        return None
    if getattr(thing, "_is_protocol", False) or getattr(thing, "__name__", "") in _MADE_BY_THE_LIBRARY:
        return "", ""
    try:
        # The hints of a struct would be evaluated; attrs keeps them as they were written.
        found = inspect.signature(getattr(thing, "__attrs_init__", thing))
    except (TypeError, ValueError):
        return None
    parameters = [
        parameter.replace(annotation=_as_written(parameter.annotation), default=_default(parameter.default))
        for number, (key, parameter) in enumerate(found.parameters.items())
        if not (number == 0 and key in ("self", "cls"))
    ]
    text = str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    back = found.return_annotation
    if isinstance(thing, type) or not isinstance(back, str):
        return text, ""
    # Of a context manager what its block gets.
    block = re.fullmatch(r"(?:AsyncGenerator|Generator|AbstractAsyncContextManager)\[(.*)\]", back)
    back = back if block is None else block[1]
    return text, "" if back == "None" else back


def _in_lines(code: str) -> list[str]:
    """An alias on one line, or with a line for each of its members."""
    if len(code) <= 88:
        return [code]
    name, _, value = code.partition(" = ")
    first, *rest = value.split(" | ")
    return [f"{name} = (", f"    {first}", *(f"    | {each}" for each in rest), ")"]


def _text_first(*event: Any) -> None:
    """Keep napoleon from taking what stands before a colon for a type; show what an alias stands for."""
    _, what, name, thing, _, lines = event
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]
    if name in _DEFINITIONS and not isgenericalias(thing):
        code = _in_lines(f"{name.rpartition('.')[2]} = {_DEFINITIONS[name]}")
        lines += ["", ".. code-block:: python", "", *(f"   {line}" for line in code), ""]


# ------------------------------------------------------------------ references

_SHORT = {
    "Any": "typing.Any",
    "AbstractAsyncContextManager": "contextlib.AbstractAsyncContextManager",
    "Path": "pathlib.Path",
    "deque": "collections.deque",
    **{
        name: f"collections.abc.{name}"
        for name in ("AsyncGenerator", "AsyncIterator", "Awaitable", "Callable", "Iterable", "Mapping", "Sequence")
    },
}
"""Names of the standard library as annotations write them."""

_PRIVATE = re.compile(
    r"(trio_agent\.\S+\.)?(_\w+|Validator|PrepareArguments|Action|ListenerScript|ModelTurn|Rule|Settings|ToolScript"
    r"|Host|Invariant|Mode|PlaceKind)$"
    r"|.* \| None$"  # text within an alias
)
"""What annotations name that is the library's own affair; it is shown and not linked."""


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> Any:
    """Find what an annotation or docstring names by its short name or by the module where it is written."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removeprefix("~")
    path = _ALIASES.get(target, target)
    python = env.domains.python_domain
    for name in dict.fromkeys((path, target)):
        found = python.find_obj(env, "", "", name, "obj", 0)
        if len(found) == 1:
            place = found[0][1]
            return nodes.reference(
                "", "", content, internal=True, reftitle=name,
                refuri=app.builder.get_relative_uri(node["refdoc"], place.docname) + f"#{place.node_id}",
            )  # fmt: skip
    if target in _SHORT:
        node["reftarget"] = _SHORT[target]
        return importlib.import_module("sphinx.ext.intersphinx").missing_reference(app, env, node, content)
    return content if _PRIVATE.match(target) else None


def _type_is_the_builtin(app: Sphinx, doctree: nodes.document) -> None:
    """Events have an attribute ``type``, which is not what an annotation means by this name."""
    for node in doctree.findall(pending_xref):
        if node.get("reftarget") == "type":
            node.attributes.pop("refspecific", None)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("missing-reference", _resolve, priority=400)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _text_first, priority=400)
    app.connect("doctree-read", _type_is_the_builtin)
