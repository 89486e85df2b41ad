"""The models that take turns: ours, ours with nothing shared, and transformers' own of the same size."""

from collections.abc import Callable, Sequence

import torch
from transformers import (
    GPT2Config,
    GPT2DoubleHeadsModel,
    GPT2LMHeadModel,
    GPT2Model,
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
    PretrainedConfig,
    PreTrainedModel,
)

from hf_gpt import GPTConfig, GPTForCausalLM, GPTForMultipleChoice, GPTForSequenceClassification, GPTModel
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

from .workloads import PAD, Row, Workload

ROWS = PAD + 1  # of the token embedding
LM_COEFFICIENT = 0.5
NEW_TOKENS = 64
PEERS = {
    "openai-gpt": (OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, OpenAIGPTLMHeadModel, OpenAIGPTModel),
    "gpt2": (GPT2Config, GPT2DoubleHeadsModel, GPT2LMHeadModel, GPT2Model),
}
# What a contender does in a turn; given a number, with so many batches only.
Turn = Callable[..., None]


def our_model(model_class: type[PreTrainedModel], size: dict) -> PreTrainedModel:
    """Our model with the release's vocabulary and dropout."""
    return model_class(GPTConfig(**size, pad_token_id=PAD))


def peer_config(name: str, size: dict) -> PretrainedConfig:
    """Configuration of transformers' own model at the same size; dropout is 0.1 everywhere, as in ours."""
    return PEERS[name][0](vocab_size=ROWS, bos_token_id=None, eos_token_id=None, pad_token_id=PAD, **size)


def our_batches(workload: Workload, share: bool, device: torch.device) -> list[dict[str, torch.Tensor]]:
    """Token trees in batches of like length."""
    batches = []
    for rows in workload.grouped:
        batch = collate_trees([TokenTree.from_paths(row, None if share else 0) for row in rows], PAD)
        batch["labels"] = torch.zeros(len(rows), dtype=torch.long)
        batches.append({name: value.to(device) for name, value in batch.items()})
    return batches


def padded(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """`input_ids` and `attention_mask`, `(rows, sequences, length)`, padded on the right to the longest."""
    length = max(len(sequence) for row in rows for sequence in row)
    input_ids = torch.full((len(rows), len(rows[0]), length), PAD)
    mask = torch.zeros_like(input_ids)
    for number, row in enumerate(rows):
        for path, sequence in enumerate(row):
            input_ids[number, path, : len(sequence)] = torch.tensor(sequence)
            mask[number, path, : len(sequence)] = 1
    return input_ids, mask


def peer_batches(workload: Workload, device: torch.device) -> list[dict[str, torch.Tensor]]:
    """The same rows in random batches, padded, with the labels of both losses."""
    batches = []
    for rows in workload.shuffled:
        input_ids, mask = padded(rows)
        batch = {
            "input_ids": input_ids,
            "attention_mask": mask.flatten(0, 1),
            "mc_token_ids": mask.sum(-1) - 1,
            "labels": input_ids.masked_fill(mask == 0, -100),
            "mc_labels": torch.zeros(len(rows), dtype=torch.long),
        }
        batches.append({name: value.to(device) for name, value in batch.items()})
    return batches


def training(workload: Workload, model: PreTrainedModel, batches: Sequence[dict], loss_of: Callable) -> Turn:
    """A turn of training steps without the update; `loss_of(model, batch)` gives a batch's loss."""
    device = next(model.parameters()).device

    def turn(limit: int | None = None) -> None:
        for batch in batches[:limit]:
            model.zero_grad()
            with workload.autocast(device):
                loss = loss_of(model, batch)
            loss.backward()

    return turn


def joint_loss(name: str, workload: Workload, size: dict, device: torch.device) -> Turn:
    """Both losses of fine-tuning. Of a peer's they are added by hand: its own `loss` leaves one out."""
    if name in PEERS:
        model = PEERS[name][1](peer_config(name, size)).to(device).train()

        def both_losses(model, batch):
            outputs = model(**batch)
            return outputs.mc_loss + LM_COEFFICIENT * outputs.loss

        return training(workload, model, peer_batches(workload, device), both_losses)
    choices = len(workload.rows[0])
    model = our_model(GPTForMultipleChoice if choices > 1 else GPTForSequenceClassification, size).to(device).train()
    batches = our_batches(workload, name == "hf_gpt", device)
    return training(workload, model, batches, lambda model, batch: model(**batch).loss)


def pretraining(name: str, workload: Workload, size: dict, device: torch.device) -> Turn:
    """The language-model loss of rows without padding."""
    rows = [torch.tensor([row[0] for row in batch], device=device) for batch in workload.grouped]
    if name in PEERS:
        model = PEERS[name][2](peer_config(name, size)).to(device).train()
        return training(workload, model, rows, lambda model, row: model(input_ids=row, labels=row).loss)
    model = our_model(GPTForCausalLM, size).to(device).train()
    batches = []
    for row in rows:
        weights = torch.ones(row.shape, device=device)
        weights[:, 0] = 0
        batches.append({"input_ids": row, "labels": row, "lm_weights": weights})
    return training(workload, model, batches, lambda model, batch: model(**batch).loss)


def features(name: str, workload: Workload, size: dict, device: torch.device) -> Turn:
    """The last hidden states of all tokens; our batches hold rows of like length."""
    model = PEERS[name][3](peer_config(name, size)) if name in PEERS else our_model(GPTModel, size)
    model = model.to(device).eval()
    batches = []
    for rows in workload.shuffled if name in PEERS else workload.grouped:
        input_ids, mask = (tensor[:, 0].to(device) for tensor in padded(rows))
        batches.append({"input_ids": input_ids, "attention_mask": mask})

    @torch.inference_mode()
    def turn(limit: int | None = None) -> None:
        with workload.autocast(device):
            for batch in batches[:limit]:
                model(**batch)

    return turn


def generation(name: str, workload: Workload, size: dict, device: torch.device) -> Turn:
    """Greedy generation of `NEW_TOKENS` tokens behind each row; openai-gpt has no key-value cache."""
    model = PEERS[name][2](peer_config(name, size)) if name in PEERS else our_model(GPTForCausalLM, size)
    model = model.to(device).eval()
    input_ids = padded(workload.rows)[0][:, 0].to(device)
    arguments = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": PAD}

    def turn(limit: int | None = None) -> None:
        chosen = input_ids[:limit]
        model.generate(chosen, attention_mask=torch.ones_like(chosen), **arguments)

    return turn


KINDS: dict[str, Callable[[str, Workload, dict, torch.device], Turn]] = {
    "pretrain": pretraining,
    "features": features,
    "generate": generation,
}
CONTENDERS = ("hf_gpt", "openai-gpt", "gpt2")
UNSHARED = "hf_gpt, nothing shared"


def contenders(workload: Workload) -> tuple[str, ...]:
    """Names of those that take turns at a workload."""
    return (*CONTENDERS, UNSHARED) if len(workload.rows[0]) > 1 else CONTENDERS


def build(name: str, workload: Workload, size: dict, device: torch.device) -> Turn:
    """What a contender does in a turn: all batches of a workload."""
    return KINDS.get(workload.suite, joint_loss)(name, workload, size, device)


def logits_difference(workload: Workload, size: dict) -> float:
    """Largest difference between our task logits and openai-gpt's on the first batch, both with the same weights."""
    theirs = OpenAIGPTDoubleHeadsModel(peer_config("openai-gpt", size)).eval()
    ours = our_model(GPTForMultipleChoice, size).eval()
    ours.load_state_dict(as_ours(theirs.state_dict()))
    rows = workload.grouped[0]
    input_ids, mask = padded(rows)
    with torch.no_grad():
        logits = ours(**collate_trees([TokenTree.from_paths(row) for row in rows], PAD)).logits
        expected = theirs(
            input_ids=input_ids, attention_mask=mask.flatten(0, 1), mc_token_ids=mask.sum(-1) - 1
        ).mc_logits
    return float((logits - expected.view_as(logits)).abs().max())


def as_ours(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Our names for the stock two-headed model's weights; its linear layers are stored transposed."""
    renamed = {}
    for name, value in state.items():
        if name == "lm_head.weight":  # the token embedding once more
            continue
        ours = name.replace("tokens_embed", "embed_tokens").replace("positions_embed", "embed_positions")
        ours = ours.replace("multiple_choice_head.summary", "score")
        is_linear = name.startswith("transformer.h.") and value.ndim == 2
        renamed[ours] = value.t().contiguous() if is_linear else value
    return renamed
