"""What this machine has to give: its GPUs, else CPU slots. Asked of `nvidia-smi`, so no torch is needed here."""

from __future__ import annotations

import shutil
import subprocess

from libs.common.settings import Settings

_QUERY = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_TIMEOUT_S = 20


def devices_of_this_machine(settings: Settings) -> list[str]:
    """`cuda:0 …` and `cpu:0 …`: CPU slots as set, one where there are no GPUs and nothing is set."""
    gpus = [f"cuda:{index}" for index in _gpu_indices()]
    slots = settings.cpu_slots if settings.cpu_slots is not None else int(not gpus)
    return [*gpus, *(f"cpu:{slot}" for slot in range(slots))]


def _gpu_indices() -> list[str]:
    if shutil.which(_QUERY[0]) is None:
        return []
    answer = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    return [line.strip() for line in answer.stdout.splitlines() if line.strip().isdigit()]
