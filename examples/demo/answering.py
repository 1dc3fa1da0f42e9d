"""Loads a Hugging Face folder and answers prompts: `python -m examples.demo.answering FOLDER < prompts.json`.

Nothing of the platform takes part: what is shown is that the exported folder stands by itself.
"""

from __future__ import annotations

import json
import sys

ANSWER_TOKENS = 12


def main(folder: str) -> None:
    """Prompts (lists of messages) as a JSON list on stdin, answers as one on the last line of stdout."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    answers: list[str] = []
    for messages in json.load(sys.stdin):
        inputs = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=ANSWER_TOKENS, do_sample=False)
        answers.append(
            tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()
        )
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
