"""Three chat templates, and a renderer of each over a tokenizer of bytes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from services.rollout.models import renderer_of
from services.rollout.rendering import Renderer
from tests.support.tiny_model import CHATML, make_tokenizer

PLAIN = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

STRIPS_REASONING = """\
{%- set place = namespace(last_user=-1) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set place.last_user = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'assistant' and '</think>' in content and loop.index0 < place.last_user %}
{%- set content = content.split('</think>')[-1].lstrip() %}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

TEMPLATES = {"plain": PLAIN, "tools": CHATML, "strips_reasoning": STRIPS_REASONING}


def write_tokenizer(folder: Path, template: str, *, context_length: int = 1_000_000) -> Path:
    """A model's folder without its weights."""
    tokenizer = make_tokenizer(template)
    tokenizer.save_pretrained(folder)
    config = {"max_position_embeddings": context_length, "eos_token_id": tokenizer.eos_token_id}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@cache
def renderer(name: str) -> Renderer:
    """The renderer of a template, made once a process."""
    with TemporaryDirectory() as folder:
        return renderer_of(write_tokenizer(Path(folder), TEMPLATES[name]))
