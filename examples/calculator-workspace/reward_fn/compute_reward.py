"""Scores an answer by its last integer."""

import re

from osmosis_ai import osmosis_reward

INTEGER = re.compile(r"-?\d+")


@osmosis_reward
def last_integer_matches(
    solution_str: str, ground_truth: str, extra_info: dict | None = None, **kwargs
) -> float:
    """1.0 when the last integer in the answer is the expected one, else 0.0."""
    found = INTEGER.findall(solution_str)
    if not found:
        return 0.0
    return 1.0 if int(found[-1]) == int(ground_truth) else 0.0
