"""Transcripts in files, and JSON that is always JSON."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Mapping
from typing import Any

from trio_agent._errors import FormatError
from trio_agent._messages import AgentMessage
from trio_agent._transcript import repair_transcript
from trio_agent._wire import transcript_from_json, transcript_to_json

__all__ = ["check_writable", "json_text", "load_transcript", "save_transcript"]


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON in ASCII, whatever tools put into their details: NaN is null, unknown objects their repr.

    ASCII keeps one line one line for every reader (some split at U+2028), and lone surrogates whole.
    """
    try:
        return json.dumps(value, allow_nan=False, default=repr, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, default=repr, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load_transcript(path: str) -> list[AgentMessage]:
    """Read a saved transcript; calls that a crash left without a result get one.

    Raises:
      OSError: it cannot be read.
      FormatError: it is no transcript.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - a path as the user wrote it
        data = file.read()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is no JSON: {error}") from error
    return repair_transcript(transcript_from_json(document))


def check_writable(path: str) -> None:
    """Find out before the work whether a transcript can be saved there.

    Raises:
      OSError: it cannot.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode  # noqa: PTH116 - a path as the user wrote it
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISREG(mode):
            # Replacing a device or a directory is never what is meant.
            raise OSError("it is no regular file")
        if not os.access(target, os.W_OK):
            raise OSError("no permission to write it")
    os.unlink(_create(target))  # noqa: PTH108 - as above


def save_transcript(path: str, messages: list[AgentMessage]) -> None:
    """Write a transcript so that the file holds the old one or the whole new one, never a part.

    Raises:
      OSError: it cannot be written; the old file is untouched.
    """
    target = os.path.realpath(path)
    text = json_text(transcript_to_json(messages), indent=1)
    temporary = _create(target)
    try:
        with open(temporary, "w", encoding="ascii") as file:  # noqa: PTH123 - as above
            if os.path.exists(target):  # noqa: PTH110 - as above
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(target).st_mode))  # noqa: PTH116 - as above
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)  # noqa: PTH105 - as above
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108 - as above
        raise


def _create(target: str) -> str:
    """A new empty file beside the target."""
    path = os.path.join(os.path.dirname(target), f".trio-agent-{secrets.token_hex(6)}.tmp")  # noqa: PTH118, PTH120
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    return path
