"""The demonstration's job in our trainer and in TRL's GRPOTrainer as it comes, one after the other: samples/s of both.

Same rows, model, batch, answer length, LoRA and learning rate. Ours: policy engine (each prompt computed once, merged
weights) and packed update. Theirs: GRPOTrainer generating by itself. The ratio is of samples a second over whole steps.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from libs.common.contracts.recipes import RunConfig
from libs.common.contracts.trajectories import Branch, Group, SampledSpan, Trajectory
from services.trainer.artifacts.convert import convert_gguf, packaged_gguf
from services.trainer.engine.sampling import SampleRequest
from services.trainer.optimisation.job import TrainingJob
from services.trainer.optimisation.policy import Policy
from services.trainer.optimisation.training import Training

INTEGER = re.compile(r"-?\d+")
ROWS = [(a, b) for a in range(10) for b in range(10)]


def held_out(count: int, seed: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Training rows and rows that are never trained on."""
    rows = list(ROWS)
    random.Random(seed).shuffle(rows)
    return rows[count:], rows[:count]


def reward(answer: str, a: int, b: int) -> float:
    """1.0 when the last integer of the answer is the sum."""
    found = INTEGER.findall(answer)
    return 1.0 if found and int(found[-1]) == a + b else 0.0


def messages(a: int, b: int) -> list[dict[str, str]]:
    """The row as a conversation, as in the example workspace."""
    question = {"role": "user", "content": f"What is {a} + {b}?"}
    return [{"role": "system", "content": "Answer with one number."}, question]


class InProcess:
    """Groups sampled by the policy's engine in this process and scored here; also the listener that keeps figures."""

    def __init__(self, policy: Policy, rows: list[tuple[int, int]], config: RunConfig) -> None:
        self.policy, self.config = policy, config
        self.order = rows
        self.steps: list[dict[str, float]] = []

    def rows_of(self, step: int) -> list[tuple[int, int]]:
        """Rows of a step, in passes over all of them."""
        per_step = self.config.training.rows_per_step
        shuffled: list[tuple[int, int]] = []
        which = 0
        while len(shuffled) < step * per_step:
            more = list(self.order)
            random.Random(which + 1000 * self.config.seed).shuffle(more)
            shuffled, which = shuffled + more, which + 1
        return shuffled[(step - 1) * per_step : step * per_step]

    def sample(self, row: tuple[int, int], seeds: Sequence[int], temperature: float) -> list[Any]:
        """Futures of answers to a row."""
        prompt = self.policy.tokenizer.apply_chat_template(
            messages(*row), add_generation_prompt=True, return_dict=False
        )
        request = SampleRequest(
            prompt_ids=prompt,
            max_tokens=self.config.sampling.max_response_length,
            temperature=temperature,
            stop_token_ids=[self.policy.tokenizer.eos_token_id],
        )
        return [
            (request, self.policy.engine.submit(request.model_copy(update={"seed": seed}))) for seed in seeds
        ]

    def next_groups(self, step: int, version: int) -> list[Group]:
        """Sample and score the step's groups."""
        n = self.config.training.n_samples_per_prompt
        asked = [
            (
                row,
                self.sample(
                    row, [hash((self.config.seed, step, row, i)) & 0x7FFFFFFF for i in range(n)], 1.0
                ),
            )
            for row in self.rows_of(step)
        ]
        return [self._group(step, row, futures) for row, futures in asked]

    def _group(self, step: int, row: tuple[int, int], futures: list[Any]) -> Group:
        trajectories: list[Trajectory] = []
        for i, (request, future) in enumerate(futures):
            result = future.result()
            span = SampledSpan(
                start=len(request.prompt_ids), logprobs=result.logprobs, version=result.version
            )
            text = self.policy.tokenizer.decode(result.token_ids, skip_special_tokens=True)
            trajectories.append(
                Trajectory(
                    rollout_id=f"{step}-{row}-{i}",
                    group_id=f"{step}-{row}",
                    row_index=0,
                    sample_index=i,
                    status="completed",
                    branches=[Branch(token_ids=[*request.prompt_ids, *result.token_ids], sampled=[span])],
                    reward=reward(text, *row),
                )
            )
        return Group(
            group_id=f"{step}-{row}",
            run_id="bench",
            epoch=1,
            batch_id=str(step),
            row_index=0,
            trajectories=trajectories,
        )

    def accuracy(self, rows: list[tuple[int, int]]) -> float:
        """Greedy accuracy on rows."""
        asked = [(row, self.sample(row, [0], 0.0)[0][1]) for row in rows]
        decode = self.policy.tokenizer.decode
        right = [reward(decode(f.result().token_ids, skip_special_tokens=True), *row) for row, f in asked]
        return sum(right) / len(right)

    def on_step(self, step: int, metrics: dict[str, float]) -> None:
        """Keep and show a step's figures."""
        self.steps.append(metrics)
        shown = {k.split("/")[1]: round(v, 3) for k, v in metrics.items()}
        print(f"ours, step {step}: {shown}", flush=True)


def ours(model: Path, config: RunConfig, held: int) -> dict[str, float]:
    """Our trainer; accuracy before and after, seconds of the training steps, samples a second."""
    train_rows, test_rows = held_out(held, config.seed)
    with tempfile.TemporaryDirectory() as folder:
        job = TrainingJob(model, config, config.training.max_steps or 1, Path(folder))
        policy = Policy.open(job)
        source = InProcess(policy, train_rows, config)
        training = Training(job, policy, source, source)
        before = source.accuracy(test_rows) if held else 0.0
        begun, used = time.perf_counter(), time.process_time()
        training.run()
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        after = source.accuracy(test_rows) if held else 0.0
        policy.close()
    samples = len(source.steps) * config.training.global_batch_size
    update = sum(step["time/update_s"] for step in source.steps)
    return {
        "heldout_before": before,
        "heldout_after": after,
        "seconds": seconds,
        "cpu_seconds": used,
        "update_seconds": update,
        "rollout_seconds": sum(step["time/rollout_s"] for step in source.steps),
        "samples_per_second": samples / seconds,
    }


def trl_as_it_comes(model: Path, config: RunConfig, steps: int) -> dict[str, float]:
    """GRPOTrainer with its own generation, its defaults otherwise."""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    training = config.training
    rows, _ = held_out(0, config.seed)
    data = Dataset.from_list([{"prompt": messages(a, b), "a": a, "b": b} for a, b in rows])

    def scored(completions: list[Any], a: list[int], b: list[int], **_: Any) -> list[float]:
        return [reward(c[0]["content"], x, y) for c, x, y in zip(completions, a, b, strict=True)]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=str(model),
            reward_funcs=scored,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=training.global_batch_size,
                num_generations=training.n_samples_per_prompt,
                max_completion_length=config.sampling.max_response_length,
                learning_rate=training.lr,
                max_steps=steps,
                use_cpu=True,
                bf16=False,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                logging_steps=1,
            ),
            train_dataset=data,
            peft_config=LoraConfig(
                r=training.lora.rank,
                lora_alpha=int(training.lora.scale_numerator),
                target_modules="all-linear",
            ),
        )
        begun, used = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    return {
        "seconds": seconds,
        "cpu_seconds": used,
        "samples_per_second": steps * training.global_batch_size / seconds,
    }


def job(steps: int, seed: int, **training: Any) -> RunConfig:
    """The demonstration's job."""
    return RunConfig.model_validate(
        {
            "base_model": "smollm2",
            "dataset": "additions",
            "rewards": [{"name": "compute_reward.last_integer_matches"}],
            "sampling": {"max_response_length": 12, "temperature": 1.0},
            "training": {
                "lr": 1e-4,
                "n_samples_per_prompt": 8,
                "global_batch_size": 64,
                "max_steps": steps,
                "micro_batch_size": 64,
                "lora": {"rank": 32},
                **training,
            },
            "seed": seed,
        }
    )


def main() -> None:
    """Both, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=int, default=0, help="rows to measure accuracy on")
    parser.add_argument("--only", choices=("ours", "trl"))
    parser.add_argument("--model", type=Path, default=Path(".osmosis/models/smollm2-135m-instruct"))
    parser.add_argument(
        "--training", type=json.loads, default={}, help="JSON merged into the job's training part"
    )
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    arguments.model.parent.mkdir(parents=True, exist_ok=True)
    model = convert_gguf(packaged_gguf(), arguments.model)
    config = job(arguments.steps, arguments.seed, **arguments.training)
    figures: dict[str, Any] = {}
    if arguments.only != "trl":
        figures["ours"] = ours(model, config, arguments.held_out)
    if arguments.only != "ours":
        figures["trl"] = trl_as_it_comes(model, config, arguments.steps)
    if len(figures) == 2:
        figures["ratio"] = figures["ours"]["samples_per_second"] / figures["trl"]["samples_per_second"]
        figures["cpu_ratio"] = figures["trl"]["cpu_seconds"] / figures["ours"]["cpu_seconds"]
    tell(figures, arguments.steps)
    print(json.dumps(figures))


def tell(figures: dict[str, Any], steps: int) -> None:
    """The figures for a reader, and where the time of a step goes."""
    for name in ("ours", "trl"):
        if name in figures:
            mine = figures[name]
            rate, cpu = mine["samples_per_second"], mine["cpu_seconds"] / steps
            print(f"{name}: {rate:.2f} samples/s, {mine['seconds'] / steps:.1f} s and {cpu:.1f} CPU s a step")
    if "ours" in figures:
        parts = (
            f"{part} {figures['ours'][part + '_seconds'] / steps:.1f} s" for part in ("rollout", "update")
        )
        print(f"ours, of a step: {', '.join(parts)}")
    if "ratio" in figures:
        print(f"ratio of samples/s {figures['ratio']:.2f}, of CPU time {figures['cpu_ratio']:.2f}")


if __name__ == "__main__":
    main()
