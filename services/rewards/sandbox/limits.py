"""How much one sandbox, and one call in it, may use."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits of a pool and of each call in it. Frozen and hashable: pools with other limits are other pools.

    A call: `wall_s` seconds of wall time, `cpu_s` of processor time, `memory_bytes` of private memory a process,
    `output_bytes` of printed text kept, `result_bytes` of answer read.
    A sandbox: `processes` at once (threads count), `open_files` a process, `file_bytes` a file, `tmp_bytes` each of
    /tmp and /dev/shm, `import_s` seconds to import one module of the project.
    """

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_bytes: int = 1024 * MIB
    output_bytes: int = 16 * 1024
    result_bytes: int = 64 * 1024
    processes: int = 64
    open_files: int = 256
    file_bytes: int = 64 * MIB
    tmp_bytes: int = 64 * MIB
    import_s: float = 60.0
