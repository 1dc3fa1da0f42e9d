"""TRL's GRPOTrainer fed with finished groups through its rollout hook.

Advantages, losses, clipping and KL are TRL's. What is added here: rewards come with the rollouts; a group whose
rewards are all equal (or absent) takes no part in the update, and a step without any signal changes no weight; the
completions of a prompt are computed behind one copy of it. The averages of a loss are over the samples that take part,
as in dynamic sampling (DAPO, Yu et al. 2025, arXiv 2503.14476, section 3.2), over whole steps whatever the size of
the micro-batches.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import torch
from peft import PeftModel
from trl.trainer.grpo_trainer import GRPOTrainer

from libs.common.contracts.trajectories import Group
from services.trainer.optimisation.figures import Apart, rollout_facts
from services.trainer.optimisation.head import plain_head, token_logprobs
from services.trainer.optimisation.packing import Packing, packed_hidden, plan
from services.trainer.optimisation.samples import Place, TokenSequence, grid, has_signal

NextGroups = Callable[[int], Sequence[Group]]
Finished = Callable[[int, dict[str, float]], None]
Batch = dict[str, Any]


class GroupTrainer(GRPOTrainer):
    """One attempt's trainer. `first_step` is the step that it begins with, from 1."""

    def __init__(
        self,
        *,
        next_groups: NextGroups,
        finished: Finished,
        first_step: int,
        rows_per_step: int,
        corrects_importance: bool,
        **arguments: Any,
    ) -> None:
        self._next_groups = next_groups
        self._finished = finished
        self._first_step = first_step
        self._rows = rows_per_step
        self.corrects_importance = corrects_importance
        self._generated: int | None = None
        self._places: list[Place] = []
        self._scoring = False
        self._apart = Apart()
        self._facts: dict[str, float] = {}
        super().__init__(rollout_func=self._roll_out, reward_funcs=[reward], **arguments)
        terms: Any = self.args
        self._samples: int = terms.num_generations
        self._cuts: int = terms.steps_per_generation
        tokenizer: Any = self._tokenizer
        self._pad: int = tokenizer.pad_token_id

    @property
    def step_under_way(self) -> int:
        """The step that is being made, from 1."""
        return self._first_step + self.state.global_step // self.num_iterations

    def _roll_out(self, prompts: list[Any], _trainer: Any) -> dict[str, list[Any]]:
        """TRL's hook: the step's groups, as a full grid."""
        begun = time.perf_counter()
        groups = self._next_groups(self.step_under_way)
        self._facts = {"time/rollout_s": time.perf_counter() - begun, "_update_begins": time.perf_counter()}
        self._places = grid(groups, self._rows, self._samples, filler=self._pad, temperature=self.temperature)
        return {
            "prompt_ids": [place.first.prompt for place in self._places],
            "completion_ids": [place.first.completion for place in self._places],
            "logprobs": [place.first.logprobs for place in self._places],
            "env_mask": [place.first.mask for place in self._places],
            "reward": [place.reward for place in self._places],
        }

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        """The micro-batch of this accumulation step, of groups with a signal alone."""
        every = self._cuts * self.num_iterations
        if self._generated != self._step // every:
            self._scoring = True
            scored = self._generate_and_score_completions(generation_batch)
            self._scoring = False
            self._generated = self._step // every
            self._micro_batches = self._cut(scored["advantages"])
        return self._micro_batches[self._step % self._cuts]

    def _cut(self, advantages: torch.Tensor) -> list[Batch]:
        """Micro-batches of the groups that have a signal, a prompt's sequences together."""
        size = self._samples
        groups = [self._places[i : i + size] for i in range(0, len(self._places), size)]
        signals = [has_signal(group) for group in groups]
        self._facts |= rollout_facts(groups, signals)
        chosen: list[tuple[TokenSequence, float]] = []
        for i, (place, advantage) in enumerate(zip(self._places, advantages.tolist(), strict=True)):
            if place.reward is not None and signals[i // size]:
                chosen += [(sequence, advantage) for sequence in (place.first, *place.more)]
        share = max(-(-len(chosen) // self._cuts), self.args.per_device_train_batch_size)
        parts = [chosen[i * share : (i + 1) * share] for i in range(self._cuts)]
        tokens = sum(sum(sequence.mask) for sequence, _ in chosen)
        return [self._tensors(part, len(chosen), tokens) for part in parts]

    def _tensors(self, part: list[tuple[TokenSequence, float]], sequences: int, tokens: int) -> Batch:
        """A micro-batch in TRL's terms; `_sequences` and `_tokens` are those of the whole step."""
        device, pad = self.accelerator.device, self._pad
        batch: Batch = {"_sequences": sequences, "_tokens": tokens, "_size": len(part)}
        if not part:
            return batch
        rows = [sequence for sequence, _ in part]
        prompt_ids = _padded([row.prompt for row in rows], pad, left=True)
        completion_ids = _padded([row.completion for row in rows], pad)
        batch |= {
            "prompt_ids": prompt_ids.to(device),
            "prompt_mask": _padded([[1] * len(row.prompt) for row in rows], 0, left=True).to(device),
            "completion_ids": completion_ids.to(device),
            "completion_mask": _padded([[1] * len(row.completion) for row in rows], 0).to(device),
            "tool_mask": _padded([row.mask for row in rows], 0).to(device),
            "advantages": torch.tensor([advantage for _, advantage in part], device=device),
            "num_items_in_batch": torch.tensor(float(tokens), device=device),
        }
        sampled = _padded([row.logprobs for row in rows], 0.0).to(device)
        batch["_sampled_logprobs"] = sampled
        if self.corrects_importance:
            unknown = sampled.isnan()
            batch["old_per_token_logps"] = (
                torch.where(unknown, self._before(batch), sampled) if unknown.any() else sampled
            )
        elif self.num_iterations > 1:
            batch["old_per_token_logps"] = self._before(batch)
        if self.beta != 0.0:
            batch["ref_per_token_logps"] = self._reference(batch)
        return batch

    @torch.no_grad()
    def _before(self, batch: Batch) -> torch.Tensor:
        """Log-probabilities `[B, C]` of the policy before the step's first update."""
        return self._logprobs_of(self.model, batch)

    @torch.no_grad()
    def _reference(self, batch: Batch) -> torch.Tensor:
        """Log-probabilities `[B, C]` of the base model: the policy without its adapter."""
        model = self.accelerator.unwrap_model(self.model)
        with model.disable_adapter():
            return self._logprobs_of(model, batch)

    def _logprobs_of(self, model: Any, batch: Batch) -> torch.Tensor:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        return self._get_per_token_logps_and_entropies(model, ids, mask, batch["completion_ids"].size(1))[0]

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, with each distinct prompt of the micro-batch computed once where that pays."""
        if self._scoring:
            # TRL asks for the whole batch at once before it cuts it; what is needed is computed a micro-batch.
            return torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device), None, None
        prompts, completions = input_ids[:, :-logits_to_keep], input_ids[:, -logits_to_keep:]
        prompt_mask, mask = attention_mask[:, :-logits_to_keep], attention_mask[:, -logits_to_keep:]
        packing = plan(prompts, prompt_mask, completions, mask)
        unusual = any(value is not None and value is not False for value in others.values())
        if packing is None or unusual or not isinstance(model, PeftModel) or plain_head(model) is None:
            answer = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, **others
            )
        else:
            answer = (*self._packed(model, packing, completions, mask.bool()), None)
        self._computed = answer[0].detach()
        return answer

    def _packed(
        self, model: PeftModel, packing: Packing, completions: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies `[B, C]`, zero where `mask` is false."""
        base: Any = model.get_base_model()
        head: Any = plain_head(base)
        with self.accelerator.autocast():
            hidden = packed_hidden(base.base_model, packing, completions.device, head.dtype)
            logprobs, entropies = token_logprobs(hidden, head, completions[mask], self.temperature)
        empty = torch.zeros(mask.shape, device=mask.device)
        return empty.masked_scatter(mask, logprobs), empty.masked_scatter(mask, entropies)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """A micro-batch without sequences leaves every gradient as it is: none at all after a step without signal."""
        if self._prepare_inputs(inputs)["_size"] == 0:
            self._step += 1
            return torch.zeros((), device=self.accelerator.device)
        return super().training_step(model, inputs, num_items_in_batch)

    def _compute_loss(self, model: Any, inputs: Batch) -> torch.Tensor:
        """TRL's, re-weighted so that micro-batches of different size add up to the mean over the step."""
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        share = {
            "grpo": inputs["_size"] / inputs["_sequences"],
            "dr_grpo": inputs["_size"] / inputs["_sequences"],
            "bnpo": float(mask.sum()) / max(inputs["_tokens"], 1),
        }.get(self.loss_type)
        loss = super()._compute_loss(model, inputs)
        self._apart.add(self._computed - inputs["_sampled_logprobs"], mask)
        return loss if share is None else loss * share * self.current_gradient_accumulation_steps

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Called once an optimiser step: collect TRL's figures, and tell of a whole step."""
        trl = {key: fmean(values) for key, values in self._metrics["train"].items() if values}
        self._metrics["train"].clear()
        apart, self._apart = self._apart.figures(), Apart()
        if "loss" not in logs or self.state.global_step % self.num_iterations:
            return
        facts, now = self._facts, time.perf_counter()
        update_s = now - facts["_update_begins"]
        whole_s = update_s + facts["time/rollout_s"]
        metrics = {key: value for key, value in facts.items() if not key.startswith("_")}
        metrics |= {
            "train/loss": float(logs["loss"]),
            "train/learning_rate": float(logs.get("learning_rate", 0.0)),
            "time/update_s": update_s,
            "perf/samples_per_second": facts["_samples"] / whole_s,
            "perf/tokens_per_second": facts["_tokens"] / whole_s,
        }
        if logs.get("grad_norm") is not None:
            metrics["train/grad_norm"] = float(logs["grad_norm"])
        metrics |= apart | {name: trl[key] for key, name in _TRL_METRICS.items() if key in trl}
        self._finished(self._first_step + self.state.global_step // self.num_iterations - 1, metrics)


_TRL_METRICS = {
    "entropy": "train/entropy_loss",
    "kl": "train/kl",
    "clip_ratio/region_mean": "train/clip_ratio",
}


def reward(
    prompts: list[Any], completions: list[Any], reward: list[float | None], **_: Any
) -> list[float | None]:
    """The rewards that came with the rollouts."""
    return reward


def _padded(rows: list[list[Any]], value: float, *, left: bool = False) -> torch.Tensor:
    """`[rows, longest]`."""
    width = max(map(len, rows))
    fill = [[value] * (width - len(row)) for row in rows]
    return torch.tensor([gap + row if left else row + gap for row, gap in zip(rows, fill, strict=True)])
