"""``python -m bench peers install``: an environment for each peer, with pinned versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable

from .table import HOME, TRIO, Peer


def install(peers: Iterable[Peer]) -> list[str]:
    """Make what is missing and install what the table says.

    Returns:
      the names of environments that could not be made, with the reason.
    """
    failed: list[str] = []
    done: set[str] = set()
    HOME.mkdir(exist_ok=True)
    for peer in peers:
        if peer.environment is None or peer.environment in done:
            continue
        done.add(peer.environment)
        what = [*peer.npm] or [TRIO, *peer.requires]
        print(f"{peer.environment}: {' '.join(what)}", flush=True)
        try:
            _with_npm(peer) if peer.npm else _with_pip(peer)
        except (OSError, subprocess.CalledProcessError) as error:
            failed.append(f"{peer.environment}: {error}")
    return failed


def _with_pip(peer: Peer) -> None:
    if not peer.installed:
        venv.create(HOME / str(peer.environment), with_pip=True)
    command = ["-m", "pip", "install", "-q", "--disable-pip-version-check", TRIO, *peer.requires]
    subprocess.run([str(peer.python), *command], check=True)


def _with_npm(peer: Peer) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("there is no npm on PATH; install Node 20 or newer")
    folder = HOME / str(peer.environment)
    folder.mkdir(exist_ok=True)
    # npm looks for a package.json in the folders above; without one here it would install there.
    package = folder / "package.json"
    if not package.exists():
        package.write_text('{"private": true}\n', "utf-8")
    command = [npm, "install", "--no-audit", "--no-fund", "--silent", "--save-exact", *peer.npm]
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)
