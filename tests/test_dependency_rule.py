"""The rule of the tree: a service imports libs.common and itself; libs import no service; the SDK imports nothing of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVICES = ("gateway", "metrics", "registry", "rewards", "rollout", "scheduler", "trainer")
ROOMS = {"domain", "store", "handlers", "api", "service", "__main__"}


def imported_modules(path: Path) -> set[str]:
    """Absolute names of every module that a file imports, wherever the import stands."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module or "") if part)
            modules.update({source, *(f"{source}.{alias.name}" for alias in node.names)})
    return modules


def offences(folder: Path, allowed: tuple[str, ...]) -> list[str]:
    """Imports of ours from below `folder` that do not start with one of `allowed`."""
    found: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        for module in sorted(imported_modules(path)):
            ours = module.startswith(("libs.", "services.", "examples.", "tests."))
            if ours and not any(f"{module}.".startswith(f"{start}.") for start in allowed):
                found.append(f"{path.relative_to(ROOT)} imports {module}")
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_only_libs_common_and_itself(service: str) -> None:
    assert (ROOT / "services" / service / "service.py").exists()
    assert offences(ROOT / "services" / service, ("libs.common", f"services.{service}")) == []


def test_libs_common_imports_no_service() -> None:
    assert offences(ROOT / "libs" / "common", ("libs.common",)) == []


def test_the_sdk_imports_nothing_of_ours() -> None:
    assert offences(ROOT / "libs" / "sdk", ()) == []


def test_the_demo_uses_the_public_door_alone() -> None:
    assert offences(ROOT / "examples", ("examples",)) == []


def test_the_rule_sees_an_import_inside_a_function_and_a_relative_one() -> None:
    source = "def f():\n    from services.rewards import pool\n"
    module = ast.parse(source)
    assert any(isinstance(node, ast.ImportFrom) for node in ast.walk(module))
    assert "libs.common.bus" in imported_modules(ROOT / "libs" / "common" / "outbox.py")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_its_rooms(service: str) -> None:
    present = {path.stem for path in (ROOT / "services" / service).iterdir()}
    assert {"handlers", "service", "store", "__main__", "migrations", "README"} <= present
