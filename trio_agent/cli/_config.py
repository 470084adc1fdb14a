"""The configuration file: options that are always the same, in TOML.

It is ``trio-agent/config.toml`` in ``$XDG_CONFIG_HOME`` (by default ``~/.config``). Its keys are the
long options without their dashes in front; what stands on the command line wins.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, final, get_args

import attrs
import click

from trio_agent._messages import ThinkingLevel

from ._exit import ExitCode

__all__ = ["ConfigurationError", "ConfiguredCommand", "configuration_path", "load_configuration", "with_configuration"]


class ConfigurationError(click.ClickException):
    """The configuration cannot be used; the message names file, key and remedy."""

    exit_code = int(ExitCode.USAGE)


@final
@attrs.frozen
class _Key:
    parameter: str
    accepts: Callable[[Any], bool]
    wanted: str
    is_path: bool = False


def _count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _names(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


_Keys: TypeAlias = Mapping[str, _Key]


def _level(value: Any) -> bool:
    return value in get_args(ThinkingLevel)


_KEYS: _Keys = {
    "base-url": _Key("base_url", _text, "a URL, in quotes"),
    "json": _Key("as_json", _flag, "true or false"),
    "max-parallel": _Key("max_parallel", _count, "a whole number, at least 1"),
    "max-turns": _Key("max_turns", _count, "a whole number, at least 1"),
    "model": _Key("model", _text, "the name of a model, in quotes"),
    "resume": _Key("resume", _text, "the name of a file, in quotes", is_path=True),
    "root": _Key("root", _text, "the name of a directory, in quotes", is_path=True),
    "save": _Key("save", _text, "the name of a file, in quotes", is_path=True),
    "sequential": _Key("sequential", _flag, "true or false"),
    "system": _Key("system", _text, "the name of a file, in quotes", is_path=True),
    "thinking": _Key("thinking", _level, f"one of {', '.join(get_args(ThinkingLevel))}, in quotes"),
    "timeout": _Key("timeout", _seconds, "a number of seconds above 0"),
    "tools": _Key("tools", _names, "a list of names, or one text with commas between them"),
}


def configuration_path() -> Path | None:
    """Where the configuration is looked for; None if there is no home directory."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - the standard has relative ones ignored
        return Path(base, "trio-agent", "config.toml")
    try:
        return Path.home() / ".config" / "trio-agent" / "config.toml"
    except RuntimeError:
        return None


def load_configuration(path: str | os.PathLike[str], *, must_exist: bool = True) -> dict[str, Any]:
    """Read a configuration; by the names of the parameters of the commands.

    Args:
      path: the file.
      must_exist: False makes a missing file an empty one.

    Raises:
      ConfigurationError: it cannot be read, is no TOML, or has a key or value that is none.
    """
    where = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        if not must_exist:
            return {}
        raise _wrong(where, error.strerror or str(error)) from error
    except (OSError, ValueError) as error:
        raise _wrong(where, (error.strerror if isinstance(error, OSError) else None) or str(error)) from error
    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise _wrong(where, f"it is no TOML: {error}") from error
    return {_known(where, name).parameter: _value(where, name, value) for name, value in document.items()}


def _wrong(where: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"cannot use the configuration {where}: {why}")


def _known(where: str, name: str) -> _Key:
    key = _KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name.replace("_", "-").lower(), _KEYS, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_KEYS)}"
        raise _wrong(where, f"there is no key {name!r}; {remedy}")
    return key


def _value(where: str, name: str, value: Any) -> Any:
    key = _KEYS[name]
    if not key.accepts(value):
        raise _wrong(where, f"{name!r} is {value!r:.60}, but must be {key.wanted}")
    if key.is_path:
        value = os.path.expanduser(value)  # noqa: PTH111 - a path as the user wrote it
        if name == "root" and not os.path.isdir(value):  # noqa: PTH112 - as above
            raise _wrong(where, f"{name!r} is {value!r}, but there is no such directory")
    return [value] if name == "tools" and isinstance(value, str) else value


class ConfiguredCommand(click.Command):
    """A command whose options have their defaults in the configuration; see :func:`with_configuration`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the configuration that the options name, then parse as usual."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        help_option = self.get_help_option(ctx)
        wants_help = help_option is not None and given.get(help_option.name or "")
        if not wants_help and not ctx.resilient_parsing:
            named = given.get("config")
            if named is not None and given.get("no_config"):
                raise click.UsageError("--config and --no-config exclude each other.", ctx)
            path = configuration_path() if named is None else named
            if path is not None and not given.get("no_config"):
                ctx.default_map = load_configuration(path, must_exist=named is not None)
        return super().parse_args(ctx, args)


def with_configuration(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which configuration is read; it does not get their values."""
    for option in (
        click.option("--no-config", is_flag=True, expose_value=False, help="Read no configuration."),
        click.option(
            "--config",
            metavar="FILE",
            expose_value=False,
            help="Read this configuration in place of $XDG_CONFIG_HOME/trio-agent/config.toml (~/.config).",
        ),
    ):
        function = option(function)
    return function
