"""What a sandbox sees of the machine: the least that Python needs, the allowed packages, the project, all read-only.

Guaranteed here: no /etc but the loader's cache, no home, no shell, no service code, none of the service's packages
beyond the named ones. The project stands at /project, our side of the protocol at /osmosis/runtime.
"""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from services.rewards.sandbox.packages import importable_paths

PROJECT = PurePosixPath("/project")
RUNTIME = PurePosixPath("/osmosis/runtime")
PACKAGES = PurePosixPath("/osmosis/packages")
SDK = PurePosixPath("/osmosis/sdk")
ENVIRONMENT = PurePosixPath("/osmosis/environment")

INSIDE = Path(__file__).parent / "inside"
SDK_SOURCE = Path(__file__).parents[3] / "libs" / "sdk" / "osmosis_ai"

_LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib64")
_SMALL_FILES = ("/etc/ld.so.cache", "/usr/share/zoneinfo")


@dataclass(frozen=True)
class View:
    """A file system to be: what is bound where, links, folders that are hidden, and Python's search path in it."""

    binds: tuple[tuple[Path, PurePosixPath], ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[PurePosixPath, ...]
    python: Path
    project: str
    import_path: tuple[str, ...]
    runtime: str = str(RUNTIME)
    package: str = field(default="inside")


def interpreter() -> Path:
    """The real executable behind a virtual environment's link."""
    return Path(getattr(sys, "_base_executable", sys.executable) or sys.executable).resolve()


def _libraries() -> tuple[list[Path], list[tuple[str, str]]]:
    binds: list[Path] = []
    links: list[tuple[str, str]] = []
    for name in _LIBRARY_FOLDERS:
        folder = Path(name)
        if folder.is_symlink():
            links.append((str(folder.readlink()), name))
        elif folder.is_dir():
            binds.append(folder)
    triplet = sysconfig.get_config_var("MULTIARCH")
    own = Path("/usr/lib") / triplet if isinstance(triplet, str) else Path("/usr/lib")
    binds.append(own if own.is_dir() else Path("/usr/lib"))
    return binds, links


def _python() -> tuple[list[Path], list[PurePosixPath]]:
    """Paths of the interpreter and its standard library, and the folders of installed packages in there to hide."""
    standard = Path(sysconfig.get_path("stdlib"))
    prefix = Path(sys.base_prefix)
    tree = standard if prefix == Path("/usr") else prefix / "lib"
    hidden = [
        PurePosixPath(folder)
        for folder in (standard / "site-packages", standard / "dist-packages")
        if folder.is_dir()
    ]
    return [interpreter(), tree], hidden


def walled_view(project: Path, packages: tuple[str, ...], environment: Path | None) -> View:
    """The view of a bubblewrap sandbox.

    `packages`: distributions that user code may import, with all they require. `environment`: the site-packages
    folder of an environment built for the project; it comes before `packages`.
    """
    libraries, links = _libraries()
    python, hidden = _python()
    same = [*libraries, *python, *(Path(name) for name in _SMALL_FILES if Path(name).exists())]
    binds = [(path, PurePosixPath(path)) for path in same]
    binds += [(path, PACKAGES / path.name) for path in importable_paths(packages)]
    binds += [(SDK_SOURCE, SDK / "osmosis_ai"), (INSIDE, RUNTIME / "inside"), (project, PROJECT)]
    path = [str(PROJECT), str(PACKAGES), str(SDK)]
    if environment is not None:
        binds.append((environment, ENVIRONMENT))
        path.insert(1, str(ENVIRONMENT))
    return View(tuple(binds), tuple(links), tuple(hidden), interpreter(), str(PROJECT), tuple(path))


def bare_view(project: Path, environment: Path | None) -> View:
    """The view without walls: this machine as it is, the service's packages included."""
    own = sysconfig.get_path("purelib")
    path = [str(project), *([str(environment)] if environment else []), own, str(SDK_SOURCE.parent)]
    return View((), (), (), interpreter(), str(project), tuple(path), runtime=str(INSIDE.parent))
