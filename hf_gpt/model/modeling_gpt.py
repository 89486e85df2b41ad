"""The original GPT (Radford et al., 2018): transformer, language models, and heads for choices, texts and tokens."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedModel, initialization
from transformers.masking_utils import create_causal_mask, find_packed_sequence_indices, packed_sequence_mask_function
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, QuestionAnsweringModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto import modeling_auto
from transformers.utils import ModelOutput, can_return_tuple, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import (
    OutputRecorder,
    capture_outputs,
    resolve_hidden_states_indices,
    selected_hidden_states,
)

from .configuration_gpt import SPECIAL_IDS, GPTConfig, default_generation_config

logger = logging.get_logger(__name__)
# How far the logit of an excluded row stays below the mean of the others: its probability is 0 in float32.
_EXCLUDED_GAP = 128.0
# Logits held at a time in training. On a CPU a chunk should stay near the caches; a GPU wants large matrix products.
_CHUNK_ELEMENTS = {"cpu": 2**23, "cuda": 2**27}
# Rows of logits begin at a multiple of this many elements: products of an odd width take a third longer.
_ALIGNMENT = 64


@dataclass
class GPTTaskOutput(ModelOutput):
    """
    Output of the task heads.

    Args:
        loss (`torch.Tensor`, *optional*): `task_loss + lm_coef * lm_loss`, of those terms that were computed.
        logits (`torch.Tensor` of shape `(batch, choices)`, `(batch, num_labels)` or `(batch, words, num_labels)`):
            scores before the softmax.
        task_loss, lm_loss (`torch.Tensor`, *optional*): mean loss of the labels, and the mean over sequences of the
            mean over their predicted tokens.
        hidden_states, attentions (`tuple[torch.Tensor]`, *optional*): states after the embedding and every block, and
            attention probabilities of every block.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    task_loss: torch.Tensor | None = None
    lm_loss: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class GPTSpanOutput(QuestionAnsweringModelOutput):
    """Logits of shape `(batch, tokens)`, -inf for padding, with both terms of the loss (see `GPTTaskOutput`)."""

    task_loss: torch.Tensor | None = None
    lm_loss: torch.Tensor | None = None


def eager_attention_forward(
    module: nn.Module, query, key, value, attention_mask, scaling: float, dropout: float = 0.0, **kwargs
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of `(batch, head, seq, dim)` tensors written out, with its probabilities: the reference for others."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling  # (batch, head, query, key)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    dropped = nn.functional.dropout(probabilities, dropout, module.training)
    return torch.matmul(dropped, value).transpose(1, 2), probabilities  # (batch, query, head, dim)


class GPTAttention(nn.Module):
    """Multi-head self-attention through transformers' attention interface."""

    def __init__(self, config: GPTConfig, layer_idx: int):
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.head_dim = config.n_embd // config.n_head
        self.scaling = self.head_dim**-0.5
        self.is_causal = config.is_causal
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.c_proj.feeds_residual = True  # for `_init_weights`, which sees each module alone
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, hidden_states: torch.Tensor, attention_mask=None, past_key_values=None, **kwargs) -> tuple:
        by_head = (*hidden_states.shape[:-1], -1, self.head_dim)  # (batch, seq, head, dim)
        # (batch, head, seq, dim) each
        query, key, value = (part.view(by_head).transpose(1, 2) for part in self.c_attn(hidden_states).chunk(3, -1))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        kwargs |= {"dropout": self.config.attn_pdrop if self.training else 0.0, "scaling": self.scaling}
        mixed, probabilities = attend(self, query, key, value, attention_mask, **kwargs)
        mixed = mixed.reshape(*hidden_states.shape[:-1], -1).contiguous()  # (batch, seq, head * dim)
        return self.resid_dropout(self.c_proj(mixed)), probabilities


class GPTMLP(nn.Module):
    """Position-wise feed-forward layer."""

    # The release's gelu is the tanh approximation, and its swish is torch's SiLU.
    activations = {"gelu": lambda: nn.GELU(approximate="tanh"), "relu": nn.ReLU, "swish": nn.SiLU}

    def __init__(self, config: GPTConfig):
        super().__init__()
        inner = config.n_inner if config.n_inner is not None else 4 * config.n_embd
        self.c_fc = nn.Linear(config.n_embd, inner)
        self.c_proj = nn.Linear(inner, config.n_embd)
        self.c_proj.feeds_residual = True
        self.act = self.activations[config.afn]()
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.resid_dropout(self.c_proj(self.act(self.c_fc(hidden_states))))


class GPTBlock(GradientCheckpointingLayer):
    """Attend, add, norm, feed, add, norm; with `norm_first` the norms come before attention and feed-forward."""

    def __init__(self, config: GPTConfig, layer_idx: int):
        super().__init__()
        self.norm_first = config.norm_first
        self.attn = GPTAttention(config, layer_idx)
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPTMLP(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, **kwargs) -> torch.Tensor:
        if self.norm_first:
            attended, _ = self.attn(self.ln_1(hidden_states), attention_mask, past_key_values, **kwargs)
            hidden_states = hidden_states + attended
            return hidden_states + self.mlp(self.ln_2(hidden_states))
        attended, _ = self.attn(hidden_states, attention_mask, past_key_values, **kwargs)
        hidden_states = self.ln_1(hidden_states + attended)
        return self.ln_2(hidden_states + self.mlp(hidden_states))


class ScalarMix(nn.Module):
    """A learnt weighted mean of layers, times a learnt factor (Peters et al., 2018, equation 1)."""

    def __init__(self, layers: int):
        super().__init__()
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        weights = self.gamma * self.scalars.softmax(0)
        return (weights.unsqueeze(-1) * states).sum(-2)  # (..., layers, n_embd) -> (..., n_embd)


class GPTPreTrainedModel(PreTrainedModel):
    """Base of all GPT models."""

    config_class = GPTConfig
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ["GPTBlock"]
    _skip_keys_device_placement = ["past_key_values", "cache"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {
        "hidden_states": GPTBlock,
        "attentions": OutputRecorder(GPTAttention, layer_name=".attn", index=1),
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if self.config.norm_first and getattr(module, "feeds_residual", False):
            # GPT-2's paper, section 2.3: no norm stands behind the sum of the 2 n_layer residual layers.
            std = self.config.initializer_range / math.sqrt(2 * self.config.n_layer)
            initialization.normal_(module.weight, mean=0.0, std=std)
        if isinstance(module, ScalarMix):
            initialization.zeros_(module.scalars)
            initialization.ones_(module.gamma)

    def save_pretrained(self, save_directory, is_main_process: bool = True, **kwargs) -> None:
        """As transformers does; generation settings are saved with every head, for the language model within."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **kwargs)
        if is_main_process and not self.can_generate():
            settings = getattr(self, "generation_config", None) or default_generation_config(self.config)
            settings.save_pretrained(save_directory)

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As transformers does; special tokens whose rows are removed become `None` in the configuration."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        config, changed = self.config, []
        for name in (*SPECIAL_IDS, "eos_token_id", "untrained_token_ids"):
            value = getattr(config, name)
            ids = value if isinstance(value, list) else [] if value is None else [value]
            kept = [token_id for token_id in ids if token_id < config.vocab_size]
            if len(kept) < len(ids):
                setattr(config, name, kept or None)
                changed.append(name)
        if changed:
            logger.warning(f"{config.vocab_size} rows hold no row for {', '.join(changed)}: now without these.")
            if self.can_generate():
                fresh = default_generation_config(config)
                names = ("bos_token_id", "eos_token_id", "pad_token_id", "suppress_tokens")
                self.generation_config.update(**{name: getattr(fresh, name) for name in names})
        return embeddings

    def language_model_loss(self, hidden_states, targets, weights, parent_index=None, rows=None, excluded=()):
        """
        Weighted sum of the cross-entropies of tokens given the states of their parents, a scalar. Only the logits that
        a non-zero weight needs are computed.

        Args:
            hidden_states (`torch.Tensor` of shape `(batch, length, n_embd)`): last hidden states.
            targets, weights (`torch.Tensor` of shape `(batch, length)`): the tokens to predict, and the weight of the
                loss of each; 0 leaves it out.
            parent_index (`torch.Tensor` of shape `(batch, length)`, *optional*): index in the row of the token
                before; by default the token to the left.
            rows (`torch.Tensor` of shape `(vocabulary, n_embd)`, *optional*): output matrix, by default that of the
                model, else the token embedding.
            excluded (`Sequence[int]`, *optional*): rows left out of the softmax in addition to that of padding.
        """
        batch, length = targets.shape
        row, column = weights.nonzero(as_tuple=True)  # (targets,) each
        parent = column - 1 if parent_index is None else parent_index[row, column]
        parent, order = (row * length + parent).sort(stable=True)  # (targets,), index into (batch * length)
        row, column = row[order], column[order]
        # Tokens that branch off the same parent are predicted by the same logits.
        parent, state_index = parent.unique_consecutive(return_inverse=True)  # (states,), (targets,)
        if rows is None:
            rows = (self.get_output_embeddings() or self.get_input_embeddings()).weight
        states = hidden_states.reshape(batch * length, -1)[parent]  # (states, n_embd)
        excluded = [*excluded, *({self.config.excluded_token_id} - {None})]
        return linear_cross_entropy(states, rows, targets[row, column], weights[row, column], excluded, state_index)


class GPTModel(GPTPreTrainedModel):
    """
    GPT's transformer without a head (Radford et al., 2018, section 3.1; GPT-2 with `norm_first` and `final_norm`).
    Reads conventional inputs and token trees (see `hf_gpt.trees.token_tree`).
    """

    def __init__(self, config: GPTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.embed_positions = nn.Embedding(config.n_positions, config.n_embd)
        self.embd_dropout = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([GPTBlock(config, layer_idx) for layer_idx in range(config.n_layer)])
        if config.final_norm:
            self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.gradient_checkpointing = False
        self.post_init()

    def dropped_embedding_rows(self, inputs_embeds: torch.Tensor | None = None) -> torch.Tensor | None:
        """
        With `config.release_quirks`, the release's one embedding matrix, `[tokens and specials; positions]`, under one
        dropout mask; `None` without them, and where embeddings are given.
        """
        if not self.config.release_quirks or inputs_embeds is not None:
            return None
        return self.embd_dropout(torch.cat([self.embed_tokens.weight, self.embed_positions.weight]))

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        subtree_end: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        embedding_rows: torch.Tensor | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        r"""
        Hidden states of every token.

        Args:
            input_ids (`torch.Tensor` of shape `(batch, length)`): tokens; or give `inputs_embeds`.
            attention_mask (`torch.Tensor` of shape `(batch, past + length)`, *optional*): 1 for tokens, 0 for padding.
            position_ids (`torch.Tensor` of shape `(batch, length)`, *optional*): by default counted from the first
                token that is not padding.
            subtree_end (`torch.Tensor` of shape `(batch, length)`, *optional*): index one past the last descendant of
                each token; token i sees token j exactly when `j <= i < subtree_end[j]`. Positions are by default
                depths; the tokens of `past_key_values` are seen by all.
            inputs_embeds (`torch.Tensor` of shape `(batch, length, n_embd)`, *optional*): token embeddings.
            past_key_values (`Cache`, *optional*): keys and values of the tokens before; also as `cache`.
            use_cache (`bool`, *optional*, defaults to `config.use_cache`): return `past_key_values`.
            embedding_rows (`torch.Tensor` of shape `(vocab_size + n_positions, n_embd)`, *optional*): with
                `config.release_quirks`, the matrix that the caller's softmax shares (`dropped_embedding_rows`).
            kwargs: `output_hidden_states`, `output_attentions` (eager), and others of the attention implementation.

        Returns:
            `BaseModelOutputWithPast`: `last_hidden_state` of shape `(batch, length, n_embd)`; hidden states are those
            after the embedding and every block.

        Raises:
            ValueError: for a sequence longer than `config.n_positions`, or arguments that exclude each other.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        past_key_values = keys_and_values(kwargs.pop("cache", None), past_key_values)
        check_inputs(self, subtree_end, attention_mask, past_key_values)
        tokens = input_ids if input_ids is not None else inputs_embeds[..., 0]  # (batch, length)
        visible = (attention_mask, position_ids, subtree_end, past_key_values)
        position_ids = token_positions(self.config, tokens, *visible)
        hidden_states = self._embed(input_ids, position_ids, inputs_embeds, embedding_rows)  # (batch, length, n_embd)
        # Positions that were given may tell packed sequences, which transformers looks for where there is no cache.
        mask = attention_mask_of(self.config, hidden_states, *visible)
        use_cache = use_cache and subtree_end is None
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        for block in self.h:
            # The position ids of packed rows tell FlashAttention where sequences begin.
            hidden_states = block(hidden_states, mask, past_key_values, position_ids=position_ids, **kwargs)
        if self.config.final_norm:
            hidden_states = self.ln_f(hidden_states)
        # By its place, as `past_key_values` is called `cache` since transformers 5.24.
        return BaseModelOutputWithPast(hidden_states, past_key_values if use_cache else None)

    def _embed(self, input_ids, position_ids, inputs_embeds, embedding_rows) -> torch.Tensor:
        rows = self.dropped_embedding_rows(inputs_embeds) if embedding_rows is None else embedding_rows
        if rows is not None:
            tokens, positions = rows.split([self.config.vocab_size, self.config.n_positions])
            return nn.functional.embedding(input_ids, tokens) + nn.functional.embedding(position_ids, positions)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return self.embd_dropout(inputs_embeds + self.embed_positions(position_ids))


class GPTLanguageModel(GPTPreTrainedModel):
    """What the causal and the masked language model share: all but the place of what a state predicts."""

    predicts_in_place = False
    _tied_weights_keys = {"lm_head.weight": "transformer.embed_tokens.weight"}

    def __init__(self, config: GPTConfig):
        super().__init__(config)
        self.transformer = GPTModel(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    @property
    def excluded_token_ids(self) -> list[int]:
        """Rows (`list[int]`) that have no probability: padding, the mask, and what no loss has trained."""
        ids = (self.config.excluded_token_id, self.config.mask_token_id, *(self.config.untrained_token_ids or ()))
        return sorted(set(ids) - {None})

    def token_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """
        Logits of tokens, of `(..., n_embd)` states. Those of `excluded_token_ids` follow the mean of the others at a
        distance that leaves no probability, and sums of log-probabilities finite, as label smoothing needs.
        """
        logits = self.lm_head(hidden_states)
        if excluded := self.excluded_token_ids:
            logits[..., excluded] = 0
            mean = logits.sum(-1, keepdim=True, dtype=torch.float32) / (logits.shape[-1] - len(excluded))
            logits[..., excluded] = (mean - _EXCLUDED_GAP).to(logits.dtype)
        return logits

    def _loss(self, hidden_states, targets, parent_index, lm_weights, rows, items, in_place: bool) -> torch.Tensor:
        """Of targets at the place of the states (`in_place`) or after them, divided by `items` or all weights."""
        config, device = self.config, targets.device
        without = list({config.mask_token_id, *(config.untrained_token_ids or ())} - {None})
        if without and not torch.compiler.is_compiling():
            found = targets[torch.isin(targets, torch.tensor(without, device=device))]
            if found.numel():
                raise ValueError(
                    f"labels hold the token {int(found[0])}, whose row is untrained and takes no part in the softmax "
                    "(mask_token_id and untrained_token_ids of the configuration): put -100 there, or, to train it, "
                    "set model.config.untrained_token_ids = None before training."
                )
        own = torch.arange(targets.shape[1], device=device)  # (length,)
        padding = config.excluded_token_id
        weights = targets.ne(-100) & targets.ne(-100 if padding is None else padding)  # (batch, length)
        if lm_weights is not None:
            weights = weights * lm_weights
        elif not in_place:
            weights = weights & (own > 0 if parent_index is None else parent_index != own)
        if in_place:
            parent_index = own.expand_as(targets)
        weights = weights / (weights.sum() if items is None else items)
        excluded = self.excluded_token_ids
        return self.language_model_loss(hidden_states, targets, weights, parent_index, rows, excluded)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        subtree_end: torch.Tensor | None = None,
        parent_index: torch.Tensor | None = None,
        lm_weights: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        r"""
        Logits of the next token (of the masked model, of that at the same place), and mean cross-entropy of `labels`.

        Args:
            input_ids, attention_mask, position_ids, subtree_end, inputs_embeds, past_key_values, use_cache, kwargs:
                see `GPTModel`.
            parent_index (`torch.Tensor` of shape `(batch, length)`, *optional*): index in the row of the token
                before each token on its path; by default the token to the left.
            lm_weights (`torch.Tensor` of shape `(batch, length)`, *optional*): weight of each token's loss, 0 for
                roots and padding. Where they are given, there are no logits: the loss never holds all of them.
            labels (`torch.Tensor` of shape `(batch, length)`, *optional*): the tokens themselves (where there is a
                shift it is made here), -100 or padding where no loss is wanted. With `shift_labels` among `kwargs`, as
                under context and sequence parallelism, these are the targets, shifted already.
            logits_to_keep (`int` or `torch.Tensor`, *optional*, defaults to 0): compute only the last n logits of a
                row, or those at given indices; 0 means all.
            num_items_in_batch (`int`, *optional*): what to divide the summed loss by; by default the number of
                labels that are predicted, or the sum of `lm_weights`.

        Returns:
            `logits` of shape `(batch, length, vocab_size)`, see `token_logits`.

        Raises:
            ValueError: for labels that have no probability, or arguments that exclude each other.
        """
        # No parameter: the Trainer would take it for labels that every evaluation batch has to have.
        shift_labels = kwargs.pop("shift_labels", None)
        if shift_labels is not None and (parent_index is not None or lm_weights is not None):
            raise ValueError("shift_labels are the targets of plain rows: leave out parent_index and lm_weights.")
        rows = self.transformer.dropped_embedding_rows(inputs_embeds)
        outputs = self.transformer(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            subtree_end=subtree_end,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache if lm_weights is None and not self.predicts_in_place else False,
            embedding_rows=rows,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        logits = None
        if lm_weights is None:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.token_logits(hidden_states[:, kept])  # (batch, kept, vocab_size)

        loss, targets = None, labels if shift_labels is None else shift_labels
        if targets is not None:
            in_place = self.predicts_in_place or shift_labels is not None
            items = num_items_in_batch
            loss = self._loss(hidden_states, targets, parent_index, lm_weights, rows, items, in_place)
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return CausalLMOutputWithPast(loss=loss, logits=logits, **others)


class GPTForCausalLM(GPTLanguageModel, GenerationMixin):
    """GPT with its language-model head, whose matrix is the token embedding."""

    def __init__(self, config: GPTConfig):
        super().__init__(config)
        self.generation_config = default_generation_config(config)


class GPTForMaskedLM(GPTLanguageModel):
    """
    GPT that reads a text from both sides (`config.is_causal` is false) and fills in what `config.mask_token_id` hides
    (Devlin et al., 2019, section 3.1). Labels stand at the places that they are predicted for; there is no cache.

    Raises:
        ValueError: if the configuration is that of a causal model.
    """

    predicts_in_place = True

    def __init__(self, config: GPTConfig):
        if config.is_causal:
            raise ValueError("A masked language model sees both sides of a token: load it with is_causal=False.")
        super().__init__(config)


class GPTTaskModel(GPTPreTrainedModel):
    """What the task heads share: a linear layer over the states of `config.head_layers`, and the joint loss."""

    score_width: int | None = None
    # Whether every token has a score where `classify_index` is not given, and a label, as words have.
    scores_tokens = reads_words = False
    # Small, and newly initialized for a task: quantisers leave them alone, and in half precision they stay whole.
    _keep_in_fp32_modules = ["score"]

    def __init__(self, config: GPTConfig):
        super().__init__(config)
        self.transformer = GPTModel(config)
        self.clf_dropout = nn.Dropout(config.clf_pdrop)
        if config.head_layers == "mix":
            self.head_mix = ScalarMix(config.n_layer + 1)
        self.score = nn.Linear(config.n_embd, self.score_width or config.num_labels)
        # Share of the task's loss that label smoothing gives to all classes alike: a setting of training, not saved.
        self.label_smoothing = 0.0
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        subtree_end: torch.Tensor | None = None,
        parent_index: torch.Tensor | None = None,
        lm_weights: torch.Tensor | None = None,
        classify_index: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        return_lm_loss: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> GPTTaskOutput:
        """
        Task logits and the joint loss `task_loss + lm_coef * lm_loss` (Radford et al., 2018, equation 5).

        Args:
            input_ids (`torch.Tensor` of shape `(batch, length)`, or `(batch, choices, length)` for multiple
                choice): one token tree per row, or conventional padded sequences.
            attention_mask (`torch.Tensor` of the shape of `input_ids`, *optional*): 1 for tokens, 0 for padding;
                for conventional inputs. A choice without any token gets the logit `-inf`.
            position_ids, subtree_end, parent_index (*optional*): see `GPTModel` and `GPTLanguageModel`.
            lm_weights (`torch.Tensor` of shape `(batch, length)`, *optional*): weight of each token in its row's
                language-model loss; by default sequences count the same, and in them all tokens after the first.
            classify_index (`torch.Tensor` of shape `(batch, paths)`, *optional*): index in the row of each path's
                classify token, -1 where there is no path; by default the first classify token of each sequence.
            inputs_embeds (`torch.Tensor` of shape `(batch, length, n_embd)`, *optional*): instead of `input_ids`;
                there is no language-model loss then, and the last token is the one to classify. They may begin with
                a prompt, virtual tokens of which the tensors of a token tree know nothing.
            labels (`torch.Tensor` of shape `(batch,)`, `(batch, num_labels)` or `(batch, words)`, *optional*): index
                of the right choice or class, a number (regression, ordinal), one 0 or 1 per label (multi-label), or
                the class of each word; -100: none.
            past_key_values (`Cache`, *optional*): keys and values of tokens before all others, such as a prefix;
                `attention_mask` then begins with these.
            return_lm_loss (`bool`, *optional*, defaults to `self.training`): compute the language-model term.
            num_items_in_batch (`int`, *optional*): number of labels over which both losses are averaged, where a
                batch is a part of a larger one; by default those of this batch.
            kwargs: see `GPTModel`.

        Raises:
            ValueError: if a conventional sequence has no classify token, or inputs contradict each other.
        """
        if return_lm_loss is None:
            return_lm_loss = self.training and (lm_weights is not None or not self.reads_words)
        return_lm_loss = return_lm_loss and self.config.lm_coef > 0 and inputs_embeds is None
        check_task_inputs(self, attention_mask, subtree_end, classify_index, return_lm_loss, lm_weights)
        batch = (inputs_embeds if input_ids is None else input_ids).shape[0]
        past_key_values = keys_and_values(kwargs.pop("cache", None), past_key_values)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        own_mask = None if attention_mask is None else attention_mask[..., past:]
        if classify_index is None:
            input_ids, own_mask, classify_index = conventional_inputs(self, input_ids, own_mask, inputs_embeds)
            attention_mask = attention_mask if past else own_mask  # (rows, past + length)
        elif inputs_embeds is not None:
            subtree_end, classify_index = behind_prompt(inputs_embeds, subtree_end, lm_weights, classify_index)
        if return_lm_loss and lm_weights is None:
            lm_weights = default_lm_weights(input_ids, own_mask, batch)

        rows = self.transformer.dropped_embedding_rows(inputs_embeds)
        wants_states = kwargs.pop("output_hidden_states", self.config.output_hidden_states)
        outputs = self.transformer(
            input_ids,
            attention_mask=attention_mask,
            position_ids=None if position_ids is None else position_ids.flatten(0, -2),  # (rows, length)
            subtree_end=subtree_end,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            embedding_rows=rows,
            output_hidden_states=wants_states if self.config.head_layers is None else True,
            **kwargs | {"use_cache": False},  # no keys and values are returned, whatever other tools pass
        )
        logits = self.head_logits(self.classify_states(outputs, classify_index), classify_index.ge(0))

        items = classify_index.ge(0).sum() if self.reads_words else batch
        if labels is not None:
            items = labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch
        weights, states = lm_weights if return_lm_loss else None, outputs.last_hidden_state
        return GPTTaskOutput(
            **self._losses(logits, labels, items, states, input_ids, weights, parent_index, rows),
            logits=logits,
            hidden_states=self._asked_states(outputs.hidden_states, wants_states),
            attentions=outputs.attentions,
        )

    def _losses(self, logits, labels, items, states, targets, weights, parent_index, rows) -> dict[str, torch.Tensor]:
        """Both terms of the loss, as means over `items` labels, and their sum; without `weights` the task's alone."""
        losses = {}
        if labels is not None:
            losses["task_loss"] = self._task_loss_sum(logits, labels) / items
            # A tensor of its own: the Trainer scales it in place.
            losses["loss"] = losses["task_loss"].clone()
            if not self.reads_words:
                items = items / (labels.numel() // labels.shape[0])  # of (batch, num_labels) the examples
        if weights is not None:
            # Coefficient and mean lie in the weights, so that the gradient of the matrix is not multiplied again.
            weights = weights * (self.config.lm_coef / items)
            auxiliary = self.language_model_loss(states, targets, weights, parent_index, rows)
            losses["lm_loss"] = auxiliary / self.config.lm_coef
            if labels is not None:
                losses["loss"] = losses["task_loss"] + auxiliary
        return losses

    def _asked_states(self, hidden_states, asked):
        """Of the captured hidden states those that the caller asked for, as the transformer alone returns them."""
        if (selected := selected_hidden_states(asked)) is None:
            return hidden_states if asked else None
        kept = resolve_hidden_states_indices(self.transformer, selected)
        return tuple(states if layer in kept else None for layer, states in enumerate(hidden_states))

    def declare_rows_trained(self) -> None:
        """
        To be called before training: where the joint loss is going to train the rows of the token embedding, none of
        them counts as untrained any more (`config.untrained_token_ids` is `None`). A forward pass changes nothing.
        """
        if self.config.lm_coef > 0 and self.get_input_embeddings().weight.requires_grad:
            self.config.untrained_token_ids = None

    def classify_states(self, outputs: BaseModelOutputWithPast, classify_index: torch.Tensor) -> torch.Tensor:
        """
        What the head reads: `(batch, paths, layers, n_embd)` states of the classify tokens in `config.head_layers`, 0
        where there is no path. `outputs` are those of the transformer, with hidden states unless that is `None`.
        """
        layers = [outputs.last_hidden_state]
        if self.config.head_layers is not None:
            layers = [outputs.hidden_states[layer] for layer in self.config.layers_of_head]
        batch, width = classify_index.shape[0], layers[0].shape[-1]
        index = classify_index.clamp(min=0).unsqueeze(-1).expand(-1, -1, width)  # (batch, paths, n_embd)
        # An item's rows one behind the other, (batch, tokens, n_embd), and of these the paths' (batch, paths, n_embd).
        pooled = [states.reshape(batch, -1, width).gather(1, index) for states in layers]
        return torch.stack(pooled, dim=2) * classify_index.ge(0)[..., None, None]  # (batch, paths, layers, n_embd)

    def head_logits(self, states: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Logits of `classify_states`; `present` of shape `(batch, paths)` is False where there is no path."""
        pooled = self.head_mix(states) if self.config.head_layers == "mix" else states.squeeze(-2)
        weight = self.score.weight
        if isinstance(weight, torch.Tensor) and weight.is_floating_point():  # A quantised weight has its own way.
            pooled = pooled.to(weight.dtype)
        return self._scores(pooled, present)  # of (batch, paths, n_embd)

    def _scores(self, pooled, present):
        return self.score(self.clf_dropout(pooled))  # (batch, paths, score_width)

    def _task_loss_sum(self, logits, labels):
        return single_label_loss(logits.float().flatten(0, -2), labels.flatten(), self.label_smoothing)

    def _shared_dropout(self, states):
        """Dropout on `(batch, paths, n_embd)` with one mask for the paths of an example, as in the release."""
        return states * self.clf_dropout(torch.ones_like(states[:, :1]))  # the mask: (batch, 1, n_embd)


class GPTForMultipleChoice(GPTTaskModel):
    """GPT that scores the choices of an item with one linear unit each and a softmax over them."""

    score_width = 1

    def _scores(self, pooled, present):
        logits = self.score(self._shared_dropout(pooled)).squeeze(-1)  # (batch, choices)
        return logits.masked_fill(~present, float("-inf"))


class GPTForSequenceClassification(GPTTaskModel):
    """GPT that classifies a text, or a pair of texts; of two paths (both orders) the states are added first."""

    def _scores(self, pooled, present):
        both = self._shared_dropout(pooled.sum(1, keepdim=True))  # (batch, 1, n_embd)
        return self.score(both).squeeze(1)  # (batch, num_labels)

    def _task_loss_sum(self, logits, labels):
        of_classes = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        inferred = "regression" if self.config.num_labels == 1 else of_classes
        return classification_loss(logits.float(), labels, self.config.problem_type or inferred, self.label_smoothing)


class GPTForTokenClassification(GPTTaskModel):
    """
    GPT that classifies words, or every token. As a causal model has read a word at its last token only, that is where
    its label belongs: `classify_index` names these tokens, `(batch, words)`; by default every token is a word.

    Both losses are means over the words that have labels: the `lm_weights` of a row add up to its number of words, as
    `hf_gpt.trees.transforms` lays it out, and without them there is no language-model loss.
    """

    reads_words = scores_tokens = True


class GPTForQuestionAnswering(GPTTaskModel):
    """
    GPT that answers a question by a span of a passage: a score of each token for being the first one of the answer,
    and one for being the last. It reads `_start_ question _delimiter_ passage _classify_`: from left to right a token
    can be scored for a question only if that stands before it. `classify_index` names the tokens of the passage,
    `(batch, tokens)`; without it all tokens that are no padding have a score.
    """

    score_width = 2
    scores_tokens = True

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs,
    ) -> GPTSpanOutput:
        r"""
        Scores of the tokens and the joint loss; the task's is the mean of the cross-entropies of both places.

        Args:
            input_ids, attention_mask, kwargs: see `GPTTaskModel`.
            start_positions, end_positions (`torch.Tensor` of shape `(batch,)`, *optional*): of the first and the last
                token of the answer among those that are scored; one outside of these counts nothing. A collator of
                token trees gives both as `labels` of shape `(batch, 2)`.
        """
        if start_positions is not None and end_positions is not None:
            labels = torch.stack([start_positions.flatten(), end_positions.flatten()], dim=1)  # (batch, 2)
            index, embeds = kwargs.get("classify_index"), kwargs.get("inputs_embeds")
            tokens = next(given for given in (index, input_ids, embeds) if given is not None).shape[1]
            kwargs["labels"] = labels.masked_fill(labels.lt(0) | labels.ge(tokens), -100)
        outputs = super().forward(input_ids, attention_mask, return_dict=True, **kwargs)
        start_logits, end_logits = outputs.logits.unbind(-1)  # (batch, tokens) each
        others = {name: value for name, value in outputs.items() if name != "logits"}
        return GPTSpanOutput(start_logits=start_logits, end_logits=end_logits, **others)

    def _scores(self, pooled, present):
        return super()._scores(pooled, present).masked_fill(~present.unsqueeze(-1), float("-inf"))

    def _task_loss_sum(self, logits, labels):
        return super()._task_loss_sum(logits.transpose(1, 2), labels.expand(-1, 2))  # (batch, 2, tokens), (batch, 2)


def conventional_inputs(model: GPTTaskModel, input_ids, attention_mask, inputs_embeds) -> tuple:
    """
    Inputs without a `classify_index` as the transformer reads them, tokens and mask of shape `(rows, length)`, and the
    index of shape `(batch, paths)`: each path's first classify token among the tokens of its item, -1 where the mask
    leaves none; of embeddings the last token, and for a head that scores tokens each one.
    """
    if model.scores_tokens or input_ids is None:
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        index = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape[0], -1)  # (batch, length)
        if attention_mask is not None:
            index = index.masked_fill(~attention_mask.bool(), -1)
        return input_ids, attention_mask, index if model.scores_tokens else index.amax(-1, keepdim=True)
    config = model.config
    batch, *_, length = input_ids.shape
    tokens = input_ids.reshape(batch, -1, length)  # (batch, paths, length)
    is_classify = tokens.eq(-1 if config.classify_token_id is None else config.classify_token_id)
    flat_mask = None if attention_mask is None else attention_mask.reshape(-1, length)  # (rows, length)
    seen = torch.ones_like(tokens) if flat_mask is None else flat_mask.view_as(tokens)
    present = seen.bool().any(-1)  # (batch, paths)
    checked = not (config.release_quirks or torch.compiler.is_compiling())
    if checked and not (is_classify.any(-1) | ~present).all():
        raise ValueError(
            f"A sequence has no classify token (id {config.classify_token_id}), so there is no state to "
            "classify: end each text with it (GPTTokenizer with task_template=True does), or give classify_index."
        )
    first = is_classify.int().argmax(-1)  # the first one; position 0 where there is none
    before = torch.arange(tokens.shape[1], device=tokens.device) * length  # (paths,), tokens of the paths before
    return tokens.flatten(0, 1), flat_mask, (before + first).masked_fill(~present, -1)


def behind_prompt(inputs_embeds, subtree_end, lm_weights, classify_index) -> tuple[torch.Tensor | None, torch.Tensor]:
    """`subtree_end` and `classify_index` where a prompt's embeddings, above all roots, stand before a token tree's."""
    described = lm_weights if subtree_end is None else subtree_end
    ahead = 0 if described is None else inputs_embeds.shape[1] - described.shape[1]
    if subtree_end is not None:
        subtree_end = nn.functional.pad(subtree_end + ahead, (ahead, 0), value=inputs_embeds.shape[1])
    return subtree_end, torch.where(classify_index < 0, classify_index, classify_index + ahead)


def default_lm_weights(input_ids: torch.Tensor, attention_mask: torch.Tensor | None, batch: int) -> torch.Tensor:
    """`1 / (sequences of the example * predicted tokens of the sequence)` for all but the first, `(rows, length)`."""
    tokens = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    tokens = tokens.bool().reshape(batch, -1, input_ids.shape[-1])  # (batch, rows of an example, length)
    predicted = (tokens & (tokens.int().cumsum(-1) > 1)).float()
    per_sequence = predicted / predicted.sum(-1, keepdim=True).clamp(min=1)
    sequences = tokens.any(-1).sum(-1).clamp(min=1)  # (batch,)
    return (per_sequence / sequences[:, None, None]).view_as(input_ids)


def keys_and_values(cache: Cache | None, past_key_values: Cache | None) -> Cache | None:
    """The keys and values of the tokens before, by the name that transformers 5.24 gives them or by the older one."""
    if cache is not None and past_key_values is not None:  # peft 0.21 knows the older name alone
        raise ValueError("Give cache or past_key_values, not both; a prefix generates with transformers 5.23 alone.")
    return past_key_values if cache is None else cache


def check_inputs(model: GPTModel, subtree_end, attention_mask, past_key_values) -> None:
    """Raise a `ValueError` for inputs that do not go together, or not with the settings of the model."""
    if past_key_values is not None and model.training and model.gradient_checkpointing:
        raise ValueError("Keys and values of a cache, such as a prefix, do not go with gradient checkpointing.")
    if subtree_end is None:
        return
    if attention_mask is not None:
        raise ValueError("subtree_end already says what each token sees: leave out attention_mask.")
    if not model.config.is_causal and not torch.compiler.is_compiling():
        within, following = subtree_end[:, :-1], subtree_end[:, 1:]  # (batch, length - 1)
        own = torch.arange(1, subtree_end.shape[1], device=subtree_end.device)
        if ((own < within) & (following != within)).any():
            raise ValueError("With is_causal=False no sequences share a beginning: set share_prefix=False.")
    if "flash" in (name := model.config._attn_implementation):
        raise ValueError(f'Token trees need a masked attention, which {name} is not: attn_implementation="sdpa".')


def check_task_inputs(model, attention_mask, subtree_end, classify_index, return_lm_loss, lm_weights) -> None:
    """Raise a `ValueError` for what a task head would get wrong."""
    if return_lm_loss and lm_weights is None and (subtree_end is not None or model.reads_words):
        raise ValueError("The loss of trees or of words needs lm_weights (TokenTreeCollator) or return_lm_loss=False.")
    if model.config.is_causal:
        return
    if return_lm_loss:
        raise ValueError("A model with is_causal=False sees the tokens that it would predict: set lm_coef to 0.")
    if classify_index is not None and attention_mask is None and subtree_end is None:
        raise ValueError("A model with is_causal=False sees padding on the right: give attention_mask or subtree_end.")


def token_positions(config, tokens, attention_mask, position_ids, subtree_end, past_key_values) -> torch.Tensor:
    """Positions as given, or counted from the first token of a row that is not padding, of a tree from its root."""
    needed, length = 0, tokens.shape[1]
    past = past_key_values.get_seq_length() if past_key_values is not None else 0
    own = torch.arange(length, device=tokens.device)
    if position_ids is None and subtree_end is not None:
        ancestors = (own < own[:, None]) & (own[:, None] < subtree_end[:, None])  # (batch, token, ancestor)
        position_ids = ancestors.sum(-1) + past  # (batch, length)
    elif position_ids is None and attention_mask is not None and attention_mask.ndim == 2:
        position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]  # (batch, length)
    elif position_ids is None:
        needed = length
        position_ids = (own + past).unsqueeze(0)  # (1, length)
    # Instead of an index error, where looking costs no synchronisation.
    if needed <= config.n_positions and position_ids.device.type == "cpu" and not torch.compiler.is_compiling():
        needed = int(position_ids.max()) + 1 if position_ids.numel() else 0
    if needed > (most := config.n_positions):
        raise ValueError(f"A sequence of {needed} tokens is longer than the context of {most}: truncate it.")
    return position_ids


def attention_mask_of(config, hidden_states, attention_mask, position_ids, subtree_end, past_key_values):
    """What the attention implementation takes: tokens see their sequence, of a tree their path; `None` may do."""
    given = (config, hidden_states, attention_mask, past_key_values)
    if subtree_end is None:
        packed = None  # transformers itself looks for packed sequences where the mask is causal
        if not config.is_causal and position_ids is not None and attention_mask is None and past_key_values is None:
            packed = find_packed_sequence_indices(position_ids.expand(len(hidden_states), -1))
        within = None if packed is None else packed_sequence_mask_function(packed)
        return create_causal_mask(*given, position_ids=position_ids, and_mask_function=within)
    past = past_key_values.get_seq_length() if past_key_values is not None else 0
    # The tokens of the cache stand above all roots.
    subtree_end = nn.functional.pad(subtree_end + past, (past, 0), value=past + subtree_end.shape[1])

    def within_subtree(batch_idx, head_idx, q_idx, kv_idx):
        seen = q_idx < subtree_end[batch_idx, kv_idx]
        return seen if config.is_causal else seen & (kv_idx < subtree_end[batch_idx, q_idx])

    # Without position_ids: transformers would take every branch for the start of a packed sequence.
    return create_causal_mask(*given, and_mask_function=within_subtree)


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of weighted cross-entropies; gradients are computed along with the loss, while a chunk's logits exist."""

    @staticmethod
    def forward(ctx, hidden, rows, targets, weights, excluded, state_index, with_grad):
        device, accumulate = hidden.device.type, torch.promote_types(hidden.dtype, torch.float32)
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        output, weights, total = rows.to(dtype), weights.to(accumulate), hidden.new_zeros((), dtype=accumulate)
        needed = [with_grad and needs_grad for needs_grad in ctx.needs_input_grad[:2]]
        grad_hidden = torch.zeros_like(hidden) if needed[0] else None
        grad_rows = torch.zeros_like(rows) if needed[1] else None
        most = max(64, _CHUNK_ELEMENTS.get(device, 2**24) // len(rows))
        if device == "cpu" and dtype.itemsize < rows.dtype.itemsize:
            most *= 4  # what a chunk adds to the gradient is converted, the whole matrix
        size = max(1, -(-len(hidden) // max(1, -(-len(hidden) // most))))  # of all chunks, nearly alike
        starts = range(0, len(hidden), size)
        first = torch.searchsorted(state_index, torch.tensor([*starts, len(hidden)], device=hidden.device)).tolist()
        width = -(-len(rows) // _ALIGNMENT) * _ALIGNMENT
        space = hidden.new_empty((size, width), dtype=dtype)[:, : len(rows)]
        for chunk, start in enumerate(starts):
            part, own = slice(start, start + size), slice(first[chunk], first[chunk + 1])
            states, target, weight = hidden[part].to(dtype), targets[own], weights[own]
            state = state_index[own] - start
            logits = torch.mm(states, output.t(), out=space[: len(states)])  # (states, rows)
            logits[:, excluded] = float("-inf")
            log_probs = logits.log_softmax(-1, dtype=accumulate)
            total -= (weight * log_probs[state, target]).sum()
            if not any(needed):
                continue
            # The gradient of the logits: weight * (softmax - one_hot(target)), summed over the targets of a state.
            delta = log_probs.exp_().mul_(weight.new_zeros(len(states)).index_add_(0, state, weight).unsqueeze(-1))
            delta = delta.index_put_((state, target), -weight, accumulate=True).to(dtype)
            if grad_hidden is not None:
                grad_hidden[part] = torch.mm(delta, output)
            if grad_rows is not None and grad_rows.dtype == dtype:
                grad_rows.addmm_(delta.t(), states)
            elif grad_rows is not None:
                grad_rows += torch.mm(delta.t(), states)
        ctx.save_for_backward(grad_hidden, grad_rows)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        # A large matrix: where the caller has put all factors into the weights, it is not read again.
        is_one = grad_output.device.type == "cpu" and grad_output.item() == 1
        grads = (grad if grad is None or is_one else grad * grad_output.to(grad.dtype) for grad in ctx.saved_tensors)
        return *grads, *[None] * 5


@torch.compiler.disable
def linear_cross_entropy(hidden, rows, targets, weights, excluded=(), state_index=None) -> torch.Tensor:
    """
    Weighted sum of the cross-entropies of `hidden @ rows.T`, computed chunk by chunk, without ever holding all logits
    (torch's own from version 2.13 on). The softmax is at least fp32; a graph break, without second derivative.

    Args:
        hidden (`torch.Tensor` of shape `(states, width)`): states that predict.
        rows (`torch.Tensor` of shape `(vocabulary, width)`): output matrix.
        targets, weights (`torch.Tensor` of shape `(targets,)`): row that a state should have predicted, and the factor
            of its cross-entropy, into which no gradient flows.
        excluded (`Sequence[int]`, *optional*): rows left out of the softmax.
        state_index (`torch.Tensor` of shape `(targets,)`, *optional*): which state predicts each target, in ascending
            order; by default each its own.
    """
    if state_index is None:
        state_index = torch.arange(len(hidden), device=hidden.device)
    with_grad = torch.is_grad_enabled()
    return _LinearCrossEntropy.apply(hidden, rows, targets, weights, list(excluded), state_index, with_grad)


def single_label_loss(logits: torch.Tensor, labels: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
    """
    Sum of cross-entropies, of which label smoothing gives a share to all classes alike (Szegedy et al., 2016).

    Args:
        logits (`torch.Tensor` of shape `(batch, classes)`): -inf where an example has no such class (choice).
        labels (`torch.Tensor` of shape `(batch,)`): the right class; -100: none.
        smoothing (`float`, *optional*, defaults to 0.0): the share.
    """
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    if not smoothing:
        return loss
    absent = logits.eq(float("-inf"))
    log_probs = logits.log_softmax(-1).masked_fill(absent | labels.eq(-100).unsqueeze(-1), 0)
    spread = log_probs.sum(-1) / (~absent).sum(-1).clamp(min=1)
    return (1 - smoothing) * loss - smoothing * spread.sum()


def classification_loss(logits: torch.Tensor, labels: torch.Tensor, problem_type: str, smoothing: float = 0.0):
    """
    Sum of the losses of `GPTForSequenceClassification`, whose labels of -100 count nothing.

    Args:
        logits (`torch.Tensor` of shape `(batch, num_labels)`): scores.
        labels (`torch.Tensor` of shape `(batch,)` or `(batch, num_labels)`): see `GPTTaskModel.forward`.
        problem_type (`str`): see `GPTConfig`.
        smoothing (`float`, *optional*, defaults to 0.0): see `single_label_loss`.

    Raises:
        ValueError: for smoothing of another problem than one right class.
    """
    if problem_type == "single_label_classification":
        return single_label_loss(logits, labels, smoothing)
    if smoothing:
        raise ValueError(f"Labels are smoothed where one class or choice is right, not in {problem_type}.")
    if problem_type == "ordinal":
        # A score between two whole ones is shared between them (Tai et al., 2015, section 5.2); -100 is near none.
        bins = torch.arange(logits.shape[-1], device=logits.device)
        shares = (1 - (labels.float().unsqueeze(-1) - bins).abs()).clamp(min=0)
        return -(shares * logits.log_softmax(-1)).sum()
    if problem_type == "regression":
        losses = nn.functional.mse_loss(logits.view_as(labels), labels.float(), reduction="none")
    else:
        losses = nn.functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")
    return losses.masked_fill(labels.eq(-100), 0).sum()


# Each head by the name that it has in flags, cards and conversion; the first is none.
HEADS: dict[str, type[GPTPreTrainedModel]] = {
    "none": GPTModel,
    "causal-lm": GPTForCausalLM,
    "multiple-choice": GPTForMultipleChoice,
    "sequence-classification": GPTForSequenceClassification,
    "token-classification": GPTForTokenClassification,
    "question-answering": GPTForQuestionAnswering,
    "masked-lm": GPTForMaskedLM,
}
# transformers' own mechanism for custom code: `save_pretrained` writes it, so that a folder loads without hf_gpt.
GPTPreTrainedModel.register_for_auto_class()
# Trainer and pipelines tell by these tables what a class is, of a causal language model that its labels are shifted.
_TABLES = {"CAUSAL_LM": "causal-lm", "MASKED_LM": "masked-lm", "TOKEN_CLASSIFICATION": "token-classification"}
for _table, _head in _TABLES.items():
    getattr(modeling_auto, f"MODEL_FOR_{_table}_MAPPING_NAMES").setdefault(GPTConfig.model_type, HEADS[_head].__name__)
