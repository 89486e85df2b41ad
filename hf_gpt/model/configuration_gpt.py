"""Configuration of the original GPT."""

import math
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig, PreTrainedConfig

# What transformers' own readers raise for settings of a wrong type.
UNREADABLE = (StrictDataclassError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)
# The class of every Auto class: what `save_pretrained` writes for those who load a model without hf_gpt.
AUTO_MAP = {
    "AutoConfig": "configuration_gpt.GPTConfig",
    "AutoModel": "modeling_gpt.GPTModel",
    "AutoModelForCausalLM": "modeling_gpt.GPTForCausalLM",
    "AutoModelForMaskedLM": "modeling_gpt.GPTForMaskedLM",
    "AutoModelForMultipleChoice": "modeling_gpt.GPTForMultipleChoice",
    "AutoModelForQuestionAnswering": "modeling_gpt.GPTForQuestionAnswering",
    "AutoModelForSequenceClassification": "modeling_gpt.GPTForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_gpt.GPTForTokenClassification",
}
# Far above the models there are, and below what takes memory or time to refuse.
LARGEST_SIZES = {"vocab_size": 1 << 24, "n_positions": 1 << 20, "n_embd": 1 << 16, "n_layer": 1000, "n_head": 1 << 16}
LARGEST_SIZES |= {"n_inner": 1 << 18}
MOST_LABELS = 100_000
DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop", "clf_pdrop")
SPECIAL_IDS = [f"{name}_token_id" for name in ("pad", "bos", "start", "delimiter", "classify", "mask")]


@strict
class GPTConfig(PreTrainedConfig):
    """
    Configuration of the GPT models; the defaults are those of the OpenAI release of 2018 plus its three special
    tokens and a padding token. `hidden_size`, `num_hidden_layers` and the other names of transformers work as well.

    Args:
        vocab_size (`int`, defaults to 40482): Rows of the token embedding: 40,478 tokens and four special ones.
        n_positions, n_embd (`int`, default to 512 and 768): Longest sequence in tokens, and width of hidden states.
        n_layer, n_head (`int`, default to 12): Number of blocks, and of attention heads in each; divides `n_embd`.
        n_inner (`int`, *optional*, defaults to `4 * n_embd`): Width of the feed-forward layer.
        afn (`str`, defaults to `"gelu"`): Activation: `"gelu"` (its tanh approximation), `"relu"` or `"swish"`.
        embd_pdrop, attn_pdrop, resid_pdrop, clf_pdrop (`float`, defaults to 0.1): Dropout on the summed embedding, on
            attention probabilities, on what is added to the residual stream, and on a task head's pooled states, of
            which the choices of an item share one mask.
        layer_norm_epsilon (`float`, defaults to 1e-05): Added to the variance under the root.
        initializer_range (`float`, defaults to 0.02): Standard deviation of new weights; with `norm_first`, that of
            the projections onto the residual stream is smaller by `sqrt(2 * n_layer)`, as GPT-2's is.
        lm_coef (`float`, defaults to 0.5): Weight of the language-model loss in the loss of the task heads.
        head_layers (`int` or `"mix"`, *optional*): What a task head reads: one layer, from 0 (the embedding) to
            `n_layer`, or a learnt mix of all layers. By default the last hidden states.
        norm_first, final_norm (`bool`, defaults to `False`): As in GPT-2, normalize before attention and feed-forward
            instead of after the residual sum, and after the last block.
        is_causal (`bool`, defaults to `True`): Tokens see only those before them. `False`: the masked language model.
        release_quirks (`bool`, defaults to `False`): Repeat three accidents of the release: the softmax of the
            language-model loss also runs over the position rows; embedding dropout falls on the embedding matrix,
            input and output side alike; a sequence without a classify token is pooled at its first token.
        use_cache, tie_word_embeddings (`bool`, default to `True`): Return the keys and values of attention for
            generation; the output matrix is the token embedding.
        pad_token_id, mask_token_id (`int`, *optional*, default to 40481 and `None`): `<pad>`, and `<mask>` of a masked
            language model, whose rows take no part in any softmax.
        bos_token_id (`int`, *optional*, defaults to 40478): Equal to `start_token_id`.
        eos_token_id (`int` or `list[int]`, *optional*): The release has no end-of-text token.
        start_token_id, delimiter_token_id, classify_token_id (`int`, *optional*, default to 40478, 40479, 40480): The
            first token of every task input, the one between its two texts, and the last, whose state a head reads.
        untrained_token_ids (`list[int]`, *optional*): Rows of the token embedding that no language-model loss has
            trained, as the special tokens are before fine-tuning: the language model gives them no probability. Task
            heads take no notice; training by their joint loss sets it to `None` (`GPTTaskModel.declare_rows_trained`).
        problem_type (`str`, *optional*): Loss of `GPTForSequenceClassification`: `"single_label_classification"`,
            `"multi_label_classification"`, `"regression"` or `"ordinal"` (scores from 0 to `num_labels - 1`, which the
            model learns as probabilities of whole scores); by default inferred from labels.

    Raises:
        ValueError: for a value that is out of its range or does not go with another.
        OverflowError: for a size that no model has; `AutoTokenizer` would take a `ValueError` for another model's.
    """

    # What FSDP2 shards apart. The embeddings stay with the root, whose weights are there for the whole forward pass:
    # the losses and `release_quirks` read them outside of their modules.
    base_model_fsdp_plan = {"h.*": "free_full_weight"}
    model_type = "hf_gpt"
    keys_to_ignore_at_inference = ["past_key_values", "cache", "hidden_states", "attentions", "task_loss", "lm_loss"]
    attribute_map = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
        "hidden_act": "afn",
    }

    vocab_size: int = 40482
    n_positions: int = 512
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    afn: Literal["gelu", "relu", "swish"] = "gelu"
    embd_pdrop: float | int = 0.1
    attn_pdrop: float | int = 0.1
    resid_pdrop: float | int = 0.1
    clf_pdrop: float | int = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    lm_coef: float | int = 0.5
    head_layers: int | Literal["mix"] | None = None
    norm_first: bool = False
    final_norm: bool = False
    is_causal: bool = True
    release_quirks: bool = False
    use_cache: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 40481
    bos_token_id: int | None = 40478
    eos_token_id: int | list[int] | None = None
    start_token_id: int | None = 40478
    delimiter_token_id: int | None = 40479
    classify_token_id: int | None = 40480
    mask_token_id: int | None = None
    untrained_token_ids: list[int] | None = None
    problem_type: (
        Literal["regression", "single_label_classification", "multi_label_classification", "ordinal"] | None
    ) = None

    def __post_init__(self, **kwargs):
        for name in sorted(self.attribute_map.keys() & kwargs.keys()):
            setattr(self, self.attribute_map[name], kwargs.pop(name))  # a field, so that its type is checked
        if (kwargs.get("num_labels") or 0) > MOST_LABELS:
            raise OverflowError(f"num_labels must be at most {MOST_LABELS:,}, not {kwargs['num_labels']}.")
        self._check_values()
        super().__post_init__(**kwargs)
        # TRL reads it of every class that is not in transformers.
        self.auto_map = getattr(self, "auto_map", None) or {}

    def _check_values(self) -> None:
        """Raise an error (see the class) for a field that is out of its range or does not go with another."""
        for name, most in LARGEST_SIZES.items():
            size = getattr(self, name)
            if size is not None and not 1 <= size <= most:
                kind = OverflowError if size > most else ValueError
                raise kind(f"{name} must be at least 1 and at most {most:,}, not {size}.")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd ({self.n_embd}) must be a multiple of n_head ({self.n_head}).")
        for name in (*DROPOUTS, "lm_coef", "initializer_range", "layer_norm_epsilon"):
            below, words = (1, "less than 1") if name in DROPOUTS else (math.inf, "finite")
            if not 0 <= getattr(self, name) < below:
                raise ValueError(f"{name} must be at least 0 and {words}, not {getattr(self, name)}.")
        if isinstance(self.head_layers, int) and not 0 <= self.head_layers <= self.n_layer:
            raise ValueError(f"head_layers is {self.head_layers}; the layers are 0 to {self.n_layer}.")
        for name in SPECIAL_IDS:
            token_id = getattr(self, name)
            if token_id is not None and not 0 <= token_id < self.vocab_size:
                outside = f"{name} is {token_id}, outside the vocabulary of {self.vocab_size} rows"
                raise ValueError(f"{outside}: set it together with vocab_size, or to None.")
        untrained = set(self.untrained_token_ids or ())
        if len(untrained) == self.vocab_size or not all(0 <= token_id < self.vocab_size for token_id in untrained):
            named = f"untrained_token_ids is {self.untrained_token_ids}"
            raise ValueError(f"{named}: name some, not all, of the vocabulary's {self.vocab_size} rows.")

    @property
    def layers_of_head(self) -> list[int]:
        """The layers (`list[int]`) whose states a task head reads, from 0, the output of the embedding."""
        if self.head_layers == "mix":
            return list(range(self.n_layer + 1))
        return [self.n_layer if self.head_layers is None else self.head_layers]

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs) -> Any:
        """As in transformers; whatever is wrong in the file is a `ValueError` that names the model."""
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except UNREADABLE as error:
            problem = " ".join(str(error).split())
            raise ValueError(f"config.json of {pretrained_model_name_or_path}: {problem}") from error

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs) -> Any:
        """As in transformers, which sets `kwargs` after the checks: here these hold for them, too."""
        found = super().from_dict(config_dict, **kwargs)
        (found[0] if isinstance(found, tuple) else found)._check_values()
        return found

    def save_pretrained(self, save_directory, *args, **kwargs) -> None:
        """As in transformers, with this code; `auto_map` names every class, not the saved one alone."""
        self.auto_map = dict(AUTO_MAP)
        super().save_pretrained(save_directory, *args, **kwargs)

    @property
    def eos_token_ids(self) -> list[int]:
        """The end-of-text tokens (`list[int]`), of which there may be none, one or several."""
        ids = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [token_id for token_id in ids if token_id is not None]

    @property
    def task_token_ids(self) -> list[int]:
        """The ids (`list[int]`) of `_start_`, `_delimiter_` and `_classify_`, as far as there are such rows."""
        ids = (self.start_token_id, self.delimiter_token_id, self.classify_token_id)
        return [token_id for token_id in ids if token_id is not None]

    @property
    def excluded_token_id(self) -> int | None:
        """The padding id (`int` or `None`) if it is a row of its own: never a target, left out of every softmax."""
        used = (0, self.bos_token_id, *self.task_token_ids, *self.eos_token_ids)
        return None if self.pad_token_id in used else self.pad_token_id


def default_generation_config(config: GPTConfig) -> GenerationConfig:
    """Generation settings that keep the special tokens, which no language model was trained to emit, out of texts."""
    specials = {*config.task_token_ids, config.pad_token_id, config.mask_token_id}
    return GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        suppress_tokens=sorted(specials - {None, *config.eos_token_ids}) or None,
    )


# `save_pretrained` then writes this file, so that a folder loads without hf_gpt.
GPTConfig.register_for_auto_class()
