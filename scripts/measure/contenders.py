"""The models that take turns: ours, ours with nothing shared, and transformers' own of the same size."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedModel
from workloads import PAD, Row, Workload

from hf_gpt import (
    GPTConfig,
    GPTForCausalLM,
    GPTForMultipleChoice,
    GPTForSequenceClassification,
    GPTModel,
    pack_for_inference,
)
from hf_gpt.conversion.ctranslate2 import write_ctranslate2
from hf_gpt.trees.collators import collate_trees
from hf_gpt.trees.token_tree import TokenTree

ROWS = PAD + 1  # of the token embedding
LM_COEFFICIENT = 0.5
NEW_TOKENS = 64
OURS, UNSHARED = "hf_gpt", "hf_gpt, nothing shared"
# Configuration, transformer, language model and double heads of both peers.
PEERS = {
    name: [getattr(transformers, prefix + part) for part in ("Config", "Model", "LMHeadModel", "DoubleHeadsModel")]
    for name, prefix in (("openai-gpt", "OpenAIGPT"), ("gpt2", "GPT2"))
}
# Who else decodes on a CPU, and in which dtype: our packed model, and CTranslate2 with the same weights.
PACKED, CTRANSLATE2 = "hf_gpt, packed", "CTranslate2"
DECODERS = {f"{name} {dtype}": dtype for name in (PACKED, CTRANSLATE2) for dtype in ("float32", "int8")}
# What a contender does in a turn; given a number, with so many batches only.
Turn = Callable[..., None]


def build_model(name: str, head: str, size: dict) -> PreTrainedModel:
    """A contender's model with the release's vocabulary and dropout of 0.1 everywhere: `none`, `lm` or `choice`."""
    place = ("none", "lm", "choice").index(head)
    if name not in PEERS:
        return (GPTModel, GPTForCausalLM, GPTForMultipleChoice)[place](GPTConfig(**size, pad_token_id=PAD))
    config_class, *classes = PEERS[name]
    config = config_class(vocab_size=ROWS, bos_token_id=None, eos_token_id=None, pad_token_id=PAD, **size)
    return classes[place](config)


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


def double_heads_batch(rows: Sequence[Row]) -> dict[str, torch.Tensor]:
    """What a peer with two heads takes, without labels."""
    input_ids, mask = padded(rows)
    return {"input_ids": input_ids, "attention_mask": mask.flatten(0, 1), "mc_token_ids": mask.sum(-1) - 1}


def peer_batches(workload: Workload, device: torch.device) -> list[dict[str, torch.Tensor]]:
    """The same rows in random batches, padded, with the labels of both losses."""
    batches = []
    for rows in workload.shuffled:
        batch = double_heads_batch(rows)
        batch["labels"] = batch["input_ids"].masked_fill(batch["input_ids"] == PAD, -100)
        batch["mc_labels"] = torch.zeros(len(rows), dtype=torch.long)
        batches.append({name: value.to(device) for name, value in batch.items()})
    return batches


def training(model: PreTrainedModel, batches: Sequence[dict], loss_of: Callable, dtype: torch.dtype) -> Turn:
    """A turn of training steps without the update; `loss_of(model, batch)` gives a batch's loss."""
    kind = next(model.parameters()).device.type
    model.train()

    def turn(limit: int | None = None) -> None:
        for batch in batches[:limit]:
            model.zero_grad()
            with torch.autocast(kind, torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = loss_of(model, batch)
            loss.backward()

    return turn


def joint_loss(name: str, workload: Workload, size: dict, device: torch.device, dtype: torch.dtype) -> Turn:
    """Both losses of fine-tuning. Of a peer's they are added by hand: its own `loss` leaves one out."""

    def both_losses(model: PreTrainedModel, batch: dict) -> torch.Tensor:
        outputs = model(**batch)
        return outputs.mc_loss + LM_COEFFICIENT * outputs.loss

    if name in PEERS:
        model = build_model(name, "choice", size).to(device)
        return training(model, peer_batches(workload, device), both_losses, dtype)
    one_choice = len(workload.rows[0]) == 1
    model_class = GPTForSequenceClassification if one_choice else GPTForMultipleChoice
    model = model_class(GPTConfig(**size, pad_token_id=PAD)).to(device)
    batches = our_batches(workload, name == OURS, device)
    return training(model, batches, lambda model, batch: model(**batch).loss, dtype)


def pretraining(name: str, workload: Workload, size: dict, device: torch.device, dtype: torch.dtype) -> Turn:
    """The language-model loss of rows without padding."""
    batches = []
    for rows in workload.grouped:
        row = torch.tensor([row[0] for row in rows], device=device)
        batches.append({"input_ids": row, "labels": row})
        if name not in PEERS:
            batches[-1]["lm_weights"] = torch.ones(row.shape, device=device)
            batches[-1]["lm_weights"][:, 0] = 0
    model = build_model(name, "lm", size).to(device)
    return training(model, batches, lambda model, batch: model(**batch).loss, dtype)


def features(name: str, workload: Workload, size: dict, device: torch.device, dtype: torch.dtype) -> Turn:
    """The last hidden states of all tokens; our batches hold rows of like length."""
    model = build_model(name, "none", size).to(device).eval()
    batches = []
    for rows in workload.shuffled if name in PEERS else workload.grouped:
        input_ids, mask = (tensor[:, 0].to(device) for tensor in padded(rows))
        batches.append({"input_ids": input_ids, "attention_mask": mask})

    @torch.inference_mode()
    def turn(limit: int | None = None) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            for batch in batches[:limit]:
                model(**batch)

    return turn


def generation(name: str, workload: Workload, size: dict, device: torch.device, dtype: torch.dtype) -> Turn:
    """Greedy generation of `NEW_TOKENS` tokens behind each row, in float32; openai-gpt has no key-value cache."""
    if name.startswith(CTRANSLATE2):
        return ctranslate2_generation(workload, size, DECODERS[name])
    model = build_model(name, "lm", size).to(device).eval()
    if name in DECODERS:
        pack_for_inference(model, DECODERS[name])
    input_ids = padded(workload.rows)[0][:, 0].to(device)
    arguments = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": PAD}

    def turn(limit: int | None = None) -> None:
        chosen = input_ids[:limit]
        model.generate(chosen, attention_mask=torch.ones_like(chosen), **arguments)

    return turn


def ctranslate2_generation(workload: Workload, size: dict, dtype: str) -> Turn:
    """The same by CTranslate2, from our export."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(
            build_model(OURS, "lm", size).eval(), None, Path(folder), None if dtype == "float32" else dtype
        )
        generator = ctranslate2.Generator(folder, compute_type=dtype, intra_threads=torch.get_num_threads())
    prompts = [[f"<{token}>" for token in ids] for ids in padded(workload.rows)[0][:, 0].tolist()]
    lengths = {"max_length": NEW_TOKENS, "min_length": NEW_TOKENS}

    def turn(limit: int | None = None) -> None:
        generator.generate_batch(prompts[:limit], include_prompt_in_result=False, **lengths)

    return turn


KINDS = {"pretrain": pretraining, "features": features, "generate": generation}


def contenders(workload: Workload, device: str = "cpu") -> tuple[str, ...]:
    """Names of those that take turns at a workload."""
    if workload.suite == "generate" and device == "cpu":
        return (OURS, *PEERS, *DECODERS)
    return (OURS, *PEERS, UNSHARED) if len(workload.rows[0]) > 1 else (OURS, *PEERS)


def build(name: str, workload: Workload, size: dict, device: torch.device, dtype: torch.dtype = torch.float32) -> Turn:
    """What a contender does in a turn, all batches of a workload; `torch.bfloat16` is autocast."""
    return KINDS.get(workload.suite, joint_loss)(name, workload, size, device, dtype)


def logits_difference(workload: Workload, size: dict) -> float:
    """Largest difference between our task logits and openai-gpt's on the first batch, both with the same weights."""
    theirs = build_model("openai-gpt", "choice", size).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = GPTForMultipleChoice.from_pretrained(folder).eval()
    rows = workload.grouped[0]
    with torch.no_grad():
        logits = ours(**collate_trees([TokenTree.from_paths(row) for row in rows], PAD)).logits
        expected = theirs(**double_heads_batch(rows)).mc_logits
    return float((logits - expected.view_as(logits)).abs().max())
