"""Frozen attrs classes that are made by the hundred thousand."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, ForwardRef, TypeVar, cast

import attrs
import msgspec

_C = TypeVar("_C", bound=type)
_V = TypeVar("_V")

_LEFT = frozenset({"__dict__", "__weakref__", "__slots__", "__init__", "__getstate__", "__setstate__"})
"""What attrs writes into a class and a struct has itself."""


def quickly_made(cls: _C) -> _C:
    """Let the objects of a frozen attrs class be made in a third of the time, everything else being the same.

    attrs sets each field of a frozen object through ``object.__setattr__``, as nothing else gets past
    the class: 0.08 microseconds a field, and a Python function around it. Here the class is made anew as
    a ``msgspec.Struct``, whose objects are made in C. Measured: 0.09 in place of 0.32 microseconds for an
    event of three fields, 0.4 in place of 1.2 for a ``ToolResultMessage``.

    What attrs knows of the fields goes over, and its functions that compare, hash and show objects, so
    that ``attrs.fields()``, ``attrs.evolve()`` and the like work as on every value; its ``__init__`` stays
    as ``__attrs_init__``, to be read. To copy and to pickle is the struct's own work. The class is final and has no
    validators; its parents are left behind.
    """
    names: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    for parent in reversed(cls.__mro__[:-1]):
        names |= vars(parent)
        for name, hint in vars(parent).get("__annotations__", {}).items():
            # Read where it was written, also once the class is shown at its public path.
            hints[name] = ForwardRef(hint, module=parent.__module__, is_class=True)
    names = {
        name: value
        for name, value in names.items()
        if name not in _LEFT and not isinstance(value, MemberDescriptorType)
    }
    names["__attrs_init__"] = cls.__init__  # type: ignore[misc]  # of this very class
    # rich asks it before attrs, and the struct's own shows every field.
    names["__rich_repr__"] = _shown
    made: Any = msgspec.Struct
    # The fields of a struct are by keyword all or none of them: those that are not are its parent's.
    for kw_only in (False, True):
        own: dict[str, Any] = names if kw_only else {"__module__": cls.__module__}
        own["__annotations__"] = {}
        for field in attrs.fields(cls):
            assert field.init, f"{cls.__name__}.{field.name} is computed"
            assert field.validator is None, f"{cls.__name__}.{field.name} has a validator"
            if field.kw_only is kw_only:
                own["__annotations__"][field.name] = field.type
                if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # to its types, a function
                    own[field.name] = msgspec.field(default_factory=cast("Any", field.default).factory)
                elif field.default is not attrs.NOTHING:
                    own[field.name] = field.default
            if kw_only and field.converter is not None:
                assert "__post_init__" not in names, f"{cls.__name__} has more than one converter"
                names["__post_init__"] = _converted(field.name, field.converter)
        made = msgspec.StructMeta(cls.__name__, (made,), own, frozen=True, eq=False, kw_only=kw_only, weakref=True)
    made.__qualname__, made.__annotations__ = cls.__qualname__, hints
    # A struct is as frozen, but says so in other words.
    made.__setattr__, made.__delattr__ = cls.__setattr__, cls.__delattr__
    return cast("_C", made)


def _converted(name: str, convert: Any) -> Any:
    write, read = msgspec.structs.force_setattr, attrgetter(name)

    def convert_field(self: Any) -> None:
        value = read(self)
        converted = convert(value)
        if converted is not value:
            write(self, name, converted)

    return convert_field


def _shown(self: Any) -> Iterator[tuple[str, Any]]:
    for field in attrs.fields(type(self)):
        if field.repr:
            yield field.name, getattr(self, field.name)


def changed(value: _V, **fields: Any) -> _V:
    """What ``attrs.evolve()`` does for a value of such a class, in a quarter of the time: 0.5 in place of 1.9 microseconds."""
    return cast("_V", msgspec.structs.replace(cast("Any", value), **fields))
