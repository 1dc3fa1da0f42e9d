"""The authoring SDK: mark functions of a workspace repository as reward functions or rubrics.

Importing this package starts nothing, reads no environment and needs only the standard library.
"""

from osmosis_ai._version import __version__
from osmosis_ai.reward import osmosis_reward
from osmosis_ai.rubric import osmosis_rubric
from osmosis_ai.signature import ResultTypeError

__all__ = ["ResultTypeError", "__version__", "osmosis_reward", "osmosis_rubric"]
