"""Why a sync cannot go on, and what git's own words mean to a user."""

from __future__ import annotations

from libs.common.contracts.code import SyncError


class SyncFailed(Exception):
    """The repository cannot be used; `errors` name file and remedy."""

    def __init__(self, *errors: SyncError) -> None:
        super().__init__("; ".join(error.message for error in errors))
        self.errors = list(errors)


def fault(message: str, *, file: str | None = None, line: int | None = None) -> SyncError:
    """A fault that fails the sync."""
    return SyncError(file=file, line=line, message=message)


def warning(message: str, *, file: str | None = None, line: int | None = None) -> SyncError:
    """Something that the author should see and that works all the same."""
    return SyncError(file=file, line=line, message=message, severity="warning")


_MEANINGS: tuple[tuple[str, str], ...] = (
    ("fsck", "the repository holds damaged or dangerous objects, and git refuses them"),
    ("couldn't find remote ref", "the branch does not exist in the repository; check its name"),
    ("not our ref", "the commit does not exist in the repository; push it first"),
    ("unadvertised object", "the commit does not exist in the repository; push it first"),
    ("remote error: upload-pack", "the commit does not exist in the repository; push it first"),
    ("file too large", "the repository is over the size limit; remove large files from its history"),
    (
        "invalid index-pack output",
        "the repository is over the size limit; remove large files from its history",
    ),
    ("signal 25", "the repository is over the size limit; remove large files from its history"),
    ("could not read username", "the repository does not exist or is private"),
    ("authentication failed", "the repository does not exist or is private"),
    ("repository not found", "the repository does not exist or is private"),
    ("' not found", "the repository does not exist or is private"),
    ("requested url returned error: 404", "the repository does not exist or is private"),
    ("requested url returned error: 403", "the git server refuses access"),
    (
        "requested url returned error: 30",
        "the git server redirects, which is not followed; use the final address",
    ),
    (
        "unable to update url base from redirection",
        "the git server redirects, which is not followed; use the final address",
    ),
    ("does not appear to be a git repository", "there is no git repository at this address"),
    ("could not resolve host", "the host of the address is unknown; check its spelling"),
    ("ssl certificate", "the certificate of the git server is not valid"),
    ("operation too slow", "the git server is too slow; try again later"),
    ("transport", "this kind of git address is not allowed; use https://"),
)


def explain(stderr: str, hidden: str) -> str:
    """What git's error output means; an unknown one is quoted, without the path `hidden`."""
    lower = stderr.lower()
    for sign, meaning in _MEANINGS:
        if sign in lower:
            return meaning
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.lower().startswith(("fatal:", "error:"))]
    said = (fatal or lines or ["no reason was given"])[0].replace(hidden, "…")
    return f"git failed: {said[:300]}"
