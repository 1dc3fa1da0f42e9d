"""Git sync: a commit of a user's repository as a content-addressed archive, and what was found in it.

Guaranteed: nothing of the repository is run and nothing of it is written to the disk but one archive. Git is asked for
objects alone: there is no work tree, so no hook, filter or submodule has anything to act on.
"""

from services.registry.gitsync.checkout import Checkout, Wanted, check_out
from services.registry.gitsync.discovery import Discovered, discover
from services.registry.gitsync.errors import SyncFailed
from services.registry.gitsync.limits import GitLimits
from services.registry.gitsync.remote import Remote, check_branch, parse_remote

__all__ = [
    "Checkout",
    "Discovered",
    "GitLimits",
    "Remote",
    "SyncFailed",
    "Wanted",
    "check_branch",
    "check_out",
    "discover",
    "parse_remote",
]
