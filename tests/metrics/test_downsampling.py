"""Down-sampling keeps the ends, the extremes, the order and, in the mean, the sum."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from libs.common.contracts.metrics import MetricPoint
from services.metrics.domain import downsample

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


def curve(values: list[float]) -> list[MetricPoint]:
    start = datetime(2026, 12, 1, tzinfo=UTC)
    return [
        MetricPoint(step=2 * step, value=value, at=start + timedelta(seconds=step))
        for step, value in enumerate(values)
    ]


@given(st.lists(VALUES, max_size=300), st.integers(2, 50))
def test_no_more_points_than_asked_for_and_no_fewer_than_there_is_room_for(values: list[float], most: int):
    assert len(downsample(curve(values), most)) == min(len(values), most)


@given(st.lists(VALUES, max_size=50), st.integers(50, 60))
def test_a_curve_that_fits_is_left_as_it_is(values: list[float], most: int):
    assert downsample(curve(values), most) == curve(values)


@given(st.lists(VALUES, min_size=3, max_size=300), st.integers(2, 50))
def test_first_and_last_point_stay_and_steps_grow(values: list[float], most: int):
    points, whole = downsample(curve(values), most), curve(values)
    assert (points[0], points[-1]) == (whole[0], whole[-1])
    steps = [point.step for point in points]
    assert steps == sorted(set(steps))


@given(st.lists(VALUES, min_size=3, max_size=300), st.integers(3, 50))
def test_the_highest_and_the_lowest_value_can_be_read_off(values: list[float], most: int):
    points = downsample(curve(values), most)
    lows = [point.value if point.low is None else point.low for point in points]
    highs = [point.value if point.high is None else point.high for point in points]
    assert (min(lows), max(highs)) == (min(values), max(values))
    assert all(
        low <= point.value + 1e-6 and point.value <= high + 1e-6
        for low, point, high in zip(lows, points, highs, strict=True)
    )


@given(st.lists(VALUES, min_size=1, max_size=20), st.integers(3, 12))
def test_buckets_of_one_size_keep_the_mean(means: list[float], size: int):
    inner = [value for mean in means for value in [mean] * size]
    points = downsample(curve([0.0, *inner, 0.0]), len(means) + 2)
    assert all(
        math.isclose(point.value, mean, rel_tol=1e-9, abs_tol=1e-6)
        for point, mean in zip(points[1:-1], means, strict=True)
    )
