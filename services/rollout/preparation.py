"""From claims to plans: the recipe, the model's tokenizer and the rows, each fetched once.

Guaranteed here: what keeps a group from being run is a sentence about it; a blob store that is away for a moment is
asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from libs.common.blobs import BlobStore
from libs.common.contracts.blobs import BlobRef
from libs.common.contracts.recipes import Recipe
from libs.common.errors import Invalid
from services.rollout.models import Renderers
from services.rollout.plans import GroupClaim, GroupPlan, dataset_of
from services.rollout.rows import DatasetRows, prompt_of

RETRY_S = (0.5, 2.0, 5.0)
_RECIPES_KEPT = 64

_log = structlog.get_logger(__name__)


class CannotRun(Exception):
    """Why no rollout of a batch can be run; the text is for the run's user."""


class Preparation:
    """Makes plans of the claims of one batch."""

    def __init__(self, blobs: BlobStore, renderers: Renderers, rows: DatasetRows) -> None:
        self._blobs = blobs
        self._renderers = renderers
        self._rows = rows
        self._recipes: dict[str, Recipe] = {}

    async def plans(self, claims: Sequence[GroupClaim]) -> list[GroupPlan | str]:
        """A plan a claim of one batch, in order, or why it has none.

        Raises:
            CannotRun: none of them has.
        """
        for wait_s in (*RETRY_S, None):
            try:
                return await self._plans(claims)
            except Invalid as error:
                raise CannotRun(error.message) from error
            except Exception as error:
                # The blob store is a foreign peer: what it raises is its driver's.
                _log.warning("a batch could not be prepared", batch=claims[0].batch.batch_id, exc_info=error)
                if wait_s is None:
                    raise CannotRun(
                        f"the run's recipe, dataset or tokenizer cannot be read: {type(error).__name__}: {error}"
                    ) from error
                await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    async def _plans(self, claims: Sequence[GroupClaim]) -> list[GroupPlan | str]:
        batch = claims[0].batch
        recipe = await self._recipe(batch.recipe)
        renderer = await self._renderers.of(recipe.base_model)
        dataset = dataset_of(batch, recipe)
        rows = await self._rows.rows(dataset, {claim.row_index for claim in claims})
        missing = f"dataset {dataset.dataset_id} has {dataset.rows} rows and no row {{}}"
        return [
            GroupPlan(claim, recipe, renderer, prompt_of(rows[claim.row_index]))
            if claim.row_index in rows
            else missing.format(claim.row_index)
            for claim in claims
        ]

    async def _recipe(self, ref: BlobRef) -> Recipe:
        if ref.sha256 not in self._recipes:
            recipe = Recipe.model_validate_json(await self._blobs.get_bytes(ref))
            while len(self._recipes) >= _RECIPES_KEPT:
                self._recipes.pop(next(iter(self._recipes)))
            self._recipes[ref.sha256] = recipe
        return self._recipes[ref.sha256]
