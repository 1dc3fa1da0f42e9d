"""Tokenizers of base models: fetched without the weights, loaded once a model, without a tensor library.

`transformers` is imported on first use, and only its tokenizer: the process stays free of torch.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from libs.common.blobs import BlobStore
from libs.common.blobs.folders import download_folder
from libs.common.contracts.recipes import BaseModelSnapshot
from libs.common.errors import Invalid
from services.rollout.messages import Message
from services.rollout.rendering import Renderer, TemplateFault

TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len")
_UNLIMITED = 1 << 30
"""Context of a model whose configuration names none: the run's own limits hold."""


class FolderTokenizer:
    """The tokenizer and chat template of a Hugging Face folder."""

    def __init__(self, folder: Path) -> None:
        self._inner = _load(folder)
        template = self._inner.chat_template
        if not isinstance(template, str) or not template.strip():
            raise Invalid("the base model has no chat template: add chat_template.jinja to its folder")
        self.template = template

    @property
    def eos_token_id(self) -> int | None:
        """The tokenizer's end-of-sequence token."""
        return cast("int | None", self._inner.eos_token_id)

    def render(self, messages: list[Message], tools: list[Any] | None) -> str:
        """The conversation as text, ending where the assistant speaks."""
        try:
            return cast(
                "str",
                self._inner.apply_chat_template(
                    messages, tools=tools, tokenize=False, add_generation_prompt=True
                ),
            )
        except Exception as error:
            # Templates are programs of the model's authors: they raise whatever they like.
            raise TemplateFault(f"{type(error).__name__}: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Token ids; no special tokens are added."""
        return cast("list[int]", self._inner.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens."""
        return cast(
            "str",
            self._inner.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False),
        )

    def spelled(self, token_id: int) -> str:
        """One token's text."""
        return cast("str", self._inner.decode([token_id], skip_special_tokens=False))


def _load(folder: Path) -> Any:
    try:
        if (folder / "tokenizer.json").exists():
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(folder)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, ImportError) as error:
        raise Invalid(f"the base model's tokenizer cannot be loaded: {error}") from error


def renderer_of(folder: Path) -> Renderer:
    """The renderer of a folder: its tokenizer, the tokens that end an answer, its context length.

    Raises:
        Invalid: the folder has no tokenizer that loads, or no chat template.
    """
    tokenizer = FolderTokenizer(folder)
    config, generation = _json(folder / "config.json"), _json(folder / "generation_config.json")
    stop_ids = {tokenizer.eos_token_id, *_ids(config), *_ids(generation)} - {None}
    return Renderer(tokenizer, cast("set[int]", stop_ids), _context_length(config))


def _json(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(path.read_text())) if path.exists() else {}


def _ids(config: Mapping[str, Any]) -> list[int]:
    given = config.get("eos_token_id")
    return cast("list[int]", given) if isinstance(given, list) else [given] if isinstance(given, int) else []


def _context_length(config: Mapping[str, Any]) -> int:
    inner = config.get("text_config")
    places = [config, cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}]
    lengths = [place.get(name) for place in places for name in _CONTEXT_FIELDS]
    return next((length for length in lengths if isinstance(length, int) and length > 0), _UNLIMITED)


class Renderers:
    """Renderers by base model: each is loaded once, whoever asks meanwhile waits for the same."""

    def __init__(self, blobs: BlobStore, cache: Path) -> None:
        self._blobs = blobs
        self._cache = cache
        self._loaded: dict[str, Renderer] = {}
        self._loading = asyncio.Lock()

    async def of(self, model: BaseModelSnapshot) -> Renderer:
        """The renderer of a base model.

        Raises:
            Invalid: its tokenizer cannot be loaded, or it has no chat template.
            BlobMissing, BlobDamaged: its files are not in the blob store.
        """
        key = model.manifest.sha256
        async with self._loading:
            if key not in self._loaded:
                folder = await download_folder(self._blobs, model.manifest, self._cache, only=TOKENIZER_FILES)
                self._loaded[key] = await asyncio.to_thread(renderer_of, folder)
        return self._loaded[key]
