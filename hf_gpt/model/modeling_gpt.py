"""The original GPT (Radford et al., 2018): transformer, language models, and heads for choices, texts and tokens."""

import copy

import torch
from torch import nn
from transformers import Cache, DynamicCache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast, MaskedLMOutput
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import (
    capture_outputs,
    resolve_hidden_states_indices,
    selected_hidden_states,
)

from .attention import Dropout
from .base_model import GPTPreTrainedModel, GPTSpanOutput, GPTTaskOutput
from .blocks import GPTBlock, Linear, ScalarMix, check_arguments, has_probabilities
from .configuration_gpt import GPTConfig, default_generation_config
from .inputs import (
    VIRTUAL_TOKENS,
    attention_mask_of,
    check_bidirectional,
    check_labels,
    check_tree_inputs,
    conventional_inputs,
    default_lm_weights,
    token_index,
    token_positions,
)
from .losses import classification_loss, single_label_loss

# How far the logit of an excluded row stays below the mean of the others: its probability is 0 in float32.
_EXCLUDED_GAP = 128.0


class GPTModel(GPTPreTrainedModel):
    """
    The transformer of GPT without a head. Reads conventional inputs and token trees (see `hf_gpt.trees.token_tree`).

    Source: Radford et al. (2018), section 3.1; `norm_first` and `final_norm` give GPT-2.
    """

    def __init__(self, config: GPTConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.embed_positions = nn.Embedding(config.n_positions, config.n_embd)
        self.embd_dropout = Dropout(config.embd_pdrop)
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
            attention_mask (`torch.Tensor` of shape `(batch, past + length)`, *optional*): 1 for tokens, 0 for
                padding, which may stand left or right. Not together with `subtree_end`.
            position_ids (`torch.Tensor` of shape `(batch, length)`, *optional*): by default counted from the first
                token that is not padding.
            subtree_end (`torch.Tensor` of shape `(batch, length)`, *optional*): index one past the last descendant
                of each token in its row; token i sees token j exactly when `j <= i < subtree_end[j]`.
            inputs_embeds (`torch.Tensor` of shape `(batch, length, n_embd)`, *optional*): token embeddings.
            past_key_values (`Cache`, *optional*): keys and values of the tokens before.
            use_cache (`bool`, *optional*, defaults to `config.use_cache`): return `past_key_values`.
            embedding_rows (`torch.Tensor` of shape `(vocab_size + n_positions, n_embd)`, *optional*): with
                `config.release_quirks`, the matrix that the caller's softmax shares (`dropped_embedding_rows`).
            kwargs: `output_hidden_states`, `output_attentions` (computed by eager attention), `return_dict`, and
                arguments of the attention implementation.

        Returns:
            `BaseModelOutputWithPast`: `last_hidden_state` of shape `(batch, length, n_embd)`; hidden states are
            those after the embedding and after every block.

        Raises:
            ValueError: if a sequence is longer than `config.n_positions`, or arguments exclude each other.
            TypeError: for a keyword argument that nothing reads.
        """
        check_arguments(self, kwargs)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        if subtree_end is not None:
            check_tree_inputs(self.config, subtree_end, position_ids, attention_mask, past_key_values)
            use_cache = False
        # Positions that were given may tell packed sequences, which transformers looks for where there is no cache.
        given_positions = position_ids
        tokens = input_ids if input_ids is not None else inputs_embeds[..., 0]  # (batch, length)
        position_ids = token_positions(self.config, position_ids, tokens, attention_mask, past_key_values)
        hidden_states = self._embed(input_ids, position_ids, inputs_embeds, embedding_rows)  # (batch, length, n_embd)

        config, wants_attentions = self.config, kwargs.get("output_attentions", self.config.output_attentions)
        if wants_attentions and not has_probabilities(config._attn_implementation):
            config = copy.copy(config)
            config._attn_implementation = "eager"
        mask = attention_mask_of(config, hidden_states, attention_mask, given_positions, subtree_end, past_key_values)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        for block in self.h:
            # The position ids of packed rows tell FlashAttention where sequences begin.
            hidden_states = block(
                hidden_states,
                mask,
                past_key_values,
                implementation=config._attn_implementation,
                position_ids=position_ids,
                **kwargs,
            )
        if self.config.final_norm:
            hidden_states = self.ln_f(hidden_states)
        return BaseModelOutputWithPast(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )

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
        self.lm_head = Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    @property
    def excluded_token_ids(self) -> list[int]:
        """Rows (`list[int]`) that have no probability: padding, the mask, and what no loss has trained."""
        config = self.config
        ids = (config.excluded_token_id, config.mask_token_id, *(config.untrained_token_ids or ()))
        return sorted(set(ids) - {None})

    def token_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """
        Logits of tokens, of `(..., n_embd)` states. Those of `excluded_token_ids` follow the mean of the others at a
        distance that leaves no probability, and keep sums of log-probabilities finite: smoothing the labels gives the
        gradient that it has without these rows, and a constant more.
        """
        logits = self.lm_head(hidden_states)
        if excluded := self.excluded_token_ids:
            logits[..., excluded] = 0
            mean = logits.sum(-1, keepdim=True, dtype=torch.float32) / (logits.shape[-1] - len(excluded))
            logits[..., excluded] = (mean - _EXCLUDED_GAP).to(logits.dtype)
        return logits

    def _loss(self, hidden_states, targets, parent_index, lm_weights, rows, items, in_place: bool) -> torch.Tensor:
        """
        Of targets that are those of the states `in_place`, or behind them; divided by `items` or all their weights.
        """
        check_labels(self.config, targets)
        own = torch.arange(targets.shape[1], device=targets.device)  # (length,)
        padding = self.config.excluded_token_id
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
    ) -> CausalLMOutputWithPast | MaskedLMOutput:
        r"""
        Logits of the next token (of the masked model, of the token at the same place) and, with `labels`, the mean
        cross-entropy of the labels.

        Args:
            input_ids, attention_mask, position_ids, subtree_end, inputs_embeds, past_key_values, use_cache, kwargs:
                see `GPTModel`.
            parent_index (`torch.Tensor` of shape `(batch, length)`, *optional*): index in the row of the token
                before each token on its path; by default the token to the left.
            lm_weights (`torch.Tensor` of shape `(batch, length)`, *optional*): weight of each token's loss, 0 for
                roots and padding. Where they are given, no logits are returned: the loss is computed without
                ever holding all of them.
            labels (`torch.Tensor` of shape `(batch, length)`, *optional*): the tokens themselves (where there is a
                shift it is made here), -100 or padding where no loss is wanted. With `shift_labels` of the same shape
                among `kwargs`, as under context and sequence parallelism, these are the targets, shifted already.
            logits_to_keep (`int` or `torch.Tensor`, *optional*, defaults to 0): compute only the last n logits of a
                row, or those at given indices; 0 means all.
            num_items_in_batch (`int`, *optional*): what to divide the summed loss by; by default the number of
                labels that are predicted, or the sum of `lm_weights`.

        Returns:
            `logits` of shape `(batch, length, vocab_size)`, see `token_logits`.

        Raises:
            ValueError: if labels hold the mask or a token of `config.untrained_token_ids`, or arguments exclude each
                other.
        """
        check_arguments(self, kwargs)
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
        found = {"hidden_states": outputs.hidden_states, "attentions": outputs.attentions}
        if self.predicts_in_place:
            return MaskedLMOutput(loss=loss, logits=logits, **found)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values, **found)


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
            raise ValueError(
                "A masked language model sees both sides of a token, and is_causal is true: load it with "
                "is_causal=False, which of a causal model is a start for training only."
            )
        super().__init__(config)


class GPTTaskModel(GPTPreTrainedModel):
    """
    What the task heads share: a linear layer over the states of the layers that `config.head_layers` names, an
    auxiliary language model, the joint loss.
    """

    score_width: int | None = None
    # Whether every token has a score where `classify_index` is not given, and a label, as words have.
    scores_tokens = reads_words = False
    # Small, and drawn anew for a task: quantisers leave them alone, and in half precision they stay whole.
    _keep_in_fp32_modules = ["score"]

    def __init__(self, config: GPTConfig):
        super().__init__(config)
        self.transformer = GPTModel(config)
        self.clf_dropout = Dropout(config.clf_pdrop)
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
        use_cache: bool | None = None,
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
            lm_weights (`torch.Tensor` of shape `(batch, length)`, *optional*): weight of each token in the
                language-model loss of its row; by default every sequence counts the same, and in it every token
                after the first.
            classify_index (`torch.Tensor` of shape `(batch, paths)`, *optional*): index in the row of each path's
                classify token, -1 where an item has fewer paths than its neighbours; by default the first
                classify token of each sequence.
            inputs_embeds (`torch.Tensor` of shape `(batch, length, n_embd)`, *optional*): instead of `input_ids`,
                together with `classify_index`; the language-model loss is then not available.
            labels (`torch.Tensor` of shape `(batch,)`, `(batch, num_labels)` or `(batch, words)`, *optional*): index
                of the right choice or class, a number (regression, ordinal), one 0 or 1 per label (multi-label), or
                the class of each word; -100: none.
            past_key_values, use_cache (*optional*): not supported, and of no effect; peft and others look for them.
            return_lm_loss (`bool`, *optional*, defaults to `self.training`): compute the language-model term.
            num_items_in_batch (`int`, *optional*): number of labels over which both losses are averaged, where a
                batch is a part of a larger one; by default those of this batch.
            kwargs: see `GPTModel`.

        Raises:
            ValueError: if a conventional sequence has no classify token, or inputs contradict each other.
            TypeError: for a keyword argument that nothing reads.
        """
        check_arguments(self, kwargs)
        if past_key_values is not None:
            raise ValueError(f"A task head reads no past_key_values. {VIRTUAL_TOKENS}")
        if return_lm_loss is None:
            return_lm_loss = self.training and (lm_weights is not None or not self.reads_words)
        return_lm_loss = return_lm_loss and self.config.lm_coef > 0 and inputs_embeds is None
        check_bidirectional(self.config, attention_mask, subtree_end, classify_index, return_lm_loss)
        batch = input_ids.shape[0] if input_ids is not None else inputs_embeds.shape[0]
        if classify_index is None:
            input_ids, attention_mask, classify_index = self.conventional_inputs(
                input_ids, attention_mask, inputs_embeds
            )
        if position_ids is not None:
            position_ids = position_ids.flatten(0, -2)  # (rows, length)
        if return_lm_loss and lm_weights is None:
            if subtree_end is not None or self.reads_words:
                raise ValueError(
                    "The language-model loss of a token tree or of words needs lm_weights: give them "
                    "(TokenTreeCollator does) or pass return_lm_loss=False."
                )
            lm_weights = default_lm_weights(input_ids, attention_mask, batch)

        rows = self.transformer.dropped_embedding_rows(inputs_embeds)
        wants_states = kwargs.pop("output_hidden_states", self.config.output_hidden_states)
        outputs = self.transformer(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            subtree_end=subtree_end,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            embedding_rows=rows,
            output_hidden_states=self._captured_layers(wants_states),
            **kwargs,
        )
        logits = self.head_logits(self.classify_states(outputs, classify_index), classify_index.ge(0))

        loss, task_loss, lm_loss = None, None, None
        items = classify_index.ge(0).sum() if self.reads_words else batch
        if labels is not None:
            items = labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch
            task_loss = self._task_loss_sum(logits, labels) / items
            if not self.reads_words:
                items = items / (labels.numel() // labels.shape[0])  # of (batch, num_labels) the examples
        if return_lm_loss:
            # Coefficient and mean lie in the weights, so that the gradient of the matrix is not multiplied again.
            weights, states = lm_weights * (self.config.lm_coef / items), outputs.last_hidden_state
            output = self.get_input_embeddings().weight if rows is None else rows
            auxiliary = self.language_model_loss(states, input_ids, weights, parent_index, output)
            lm_loss = auxiliary / self.config.lm_coef
        if task_loss is not None:
            # A tensor of its own in any case: the Trainer scales it in place.
            loss = task_loss.clone() if lm_loss is None else task_loss + auxiliary
        return GPTTaskOutput(
            loss=loss,
            logits=logits,
            task_loss=task_loss,
            lm_loss=lm_loss,
            hidden_states=self._asked_states(outputs.hidden_states, wants_states),
            attentions=outputs.attentions,
        )

    def declare_rows_trained(self) -> None:
        """
        To be called before training: where the joint loss is going to train the rows of the token embedding, none of
        them counts as untrained any more (`config.untrained_token_ids` is `None`). A forward pass changes nothing.
        """
        if self.config.lm_coef > 0 and self.get_input_embeddings().weight.requires_grad:
            self.config.untrained_token_ids = None

    def conventional_inputs(self, input_ids, attention_mask, inputs_embeds=None):
        """Inputs without `classify_index` as the transformer reads them, and that index; see `inputs.py`."""
        if self.scores_tokens:
            return input_ids, attention_mask, token_index(input_ids, attention_mask, inputs_embeds)
        return conventional_inputs(self.config, input_ids, attention_mask)

    def _captured_layers(self, asked):
        """`output_hidden_states` of the transformer: what the caller asks for, and what the head reads."""
        selected = selected_hidden_states(asked)
        if self.config.head_layers is None or (selected is None and asked):
            return asked
        return [*self.config.layers_of_head, *(selected or ())]

    def _asked_states(self, hidden_states, asked):
        """Of the captured hidden states those that the caller asked for, as the transformer alone returns them."""
        selected = selected_hidden_states(asked)
        if selected is None:
            return hidden_states if asked else None
        kept = resolve_hidden_states_indices(self.transformer, selected)
        return tuple(states if layer in kept else None for layer, states in enumerate(hidden_states))

    def classify_states(self, outputs: BaseModelOutputWithPast, classify_index: torch.Tensor) -> torch.Tensor:
        """
        What the head reads: `(batch, paths, layers, n_embd)` states of the classify tokens in the layers that
        `config.head_layers` names, 0 where there is no path. `outputs` are those of the transformer (with
        `hidden_states`, if `head_layers` is not `None`).
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

    def _shared_dropout(self, states):
        """Dropout on `(batch, paths, n_embd)` with one mask for the paths of an example, as in the release."""
        return states * self.clf_dropout(torch.ones_like(states[:, :1]))  # the mask: (batch, 1, n_embd)


class GPTForMultipleChoice(GPTTaskModel):
    """GPT that scores the choices of an item with one linear unit each and a softmax over them."""

    score_width = 1

    def _scores(self, pooled, present):
        logits = self.score(self._shared_dropout(pooled)).squeeze(-1)  # (batch, choices)
        return logits.masked_fill(~present, float("-inf"))

    def _task_loss_sum(self, logits, labels):
        return single_label_loss(logits.float(), labels, self.label_smoothing)


class GPTForSequenceClassification(GPTTaskModel):
    """GPT that classifies a text, or a pair of texts; of two paths (both orders) the states are added first."""

    def _scores(self, pooled, present):
        both = self._shared_dropout(pooled.sum(1, keepdim=True))  # (batch, 1, n_embd)
        return self.score(both).squeeze(1)  # (batch, num_labels)

    def _task_loss_sum(self, logits, labels):
        problem_type = self.config.problem_type
        if problem_type is None:
            if self.config.num_labels == 1:
                problem_type = "regression"
            elif labels.is_floating_point():
                problem_type = "multi_label_classification"
            else:
                problem_type = "single_label_classification"
        return classification_loss(logits.float(), labels, problem_type, self.label_smoothing)


class GPTForTokenClassification(GPTTaskModel):
    """
    GPT that classifies words, or every token. As a causal model has read a word at its last token only, that is where
    its label belongs: `classify_index` names these tokens, `(batch, words)`, and without it there are as many words as
    tokens.

    Both losses are means over the words that have labels, -100 standing for none: the `lm_weights` of a row add up to
    its number of words, as `hf_gpt.trees.transforms` lays it out, and without them there is no language-model loss.
    """

    reads_words = scores_tokens = True

    def _scores(self, pooled, present):
        return self.score(self.clf_dropout(pooled))  # (batch, words, num_labels)

    def _task_loss_sum(self, logits, labels):
        return single_label_loss(logits.float().flatten(0, 1), labels.flatten(), self.label_smoothing)


class GPTForQuestionAnswering(GPTTaskModel):
    """
    GPT that answers a question by a span of a passage: a score of each token for being the first one of the answer,
    and one for being the last. It reads `_start_ question _delimiter_ passage _classify_`: from left to right a token
    of the passage can be scored for a question only if that stands before it.

    `classify_index` names the tokens of the passage, `(batch, tokens)`; without it all tokens that are no padding
    have a score.
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
                token of the answer, among those that are scored. A place that is negative, or behind the tokens as an
                answer outside a window is, counts nothing. A collator of token trees gives both as `labels` of shape
                `(batch, 2)`.

        Returns:
            `GPTSpanOutput`
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
        return self.score(self.clf_dropout(pooled)).masked_fill(~present.unsqueeze(-1), float("-inf"))  # (b, t, 2)

    def _task_loss_sum(self, logits, labels):
        places = logits.float().transpose(1, 2).flatten(0, 1)  # (batch * 2, tokens)
        return single_label_loss(places, labels.expand(-1, 2).flatten(), self.label_smoothing)


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
# Trainer and pipelines tell by these tables what a class is, of a causal language model that its labels are shifted.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.setdefault(GPTConfig.model_type, GPTForCausalLM.__name__)
MODEL_FOR_MASKED_LM_MAPPING_NAMES.setdefault(GPTConfig.model_type, GPTForMaskedLM.__name__)
MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES.setdefault(GPTConfig.model_type, GPTForTokenClassification.__name__)

__all__ = [
    "GPTForCausalLM",
    "GPTForMaskedLM",
    "GPTForMultipleChoice",
    "GPTForQuestionAnswering",
    "GPTForSequenceClassification",
    "GPTForTokenClassification",
    "GPTModel",
    "GPTPreTrainedModel",
    "GPTTaskOutput",
]
