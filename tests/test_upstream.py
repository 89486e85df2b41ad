"""Every private or volatile name of other libraries that hf_gpt uses, and why: to look at when one is released."""

import ast
import importlib
import inspect
import itertools
from pathlib import Path
from pkgutil import resolve_name, walk_packages

import pytest

import hf_gpt

PACKAGE = Path(hf_gpt.__file__).parent

# Private attributes of others that are read or called.
READ = {
    "os._exit": "a process ends at once where a second signal comes",
    "peft.tuners.tuners_utils.BaseTunerLayer._cast_input_dtype": "mixed precision as in peft's own layers",
    "peft.tuners.tuners_utils.BaseTunerLayer._move_adapter_to_device_of_base_layer": "the same for devices",
    **dict.fromkeys(
        [f"peft.utils.PeftType.{name}" for name in ("_member_map_", "_member_names_", "_value2member_map_")],
        "peft has no public way to add a method to its enumeration",
    ),
    **dict.fromkeys(
        [f"torch._foreach_{name}" for name in ("add_", "addcmul_", "div", "lerp_", "mul_", "sqrt")],
        "the release's Adam over all parameters at once; torch.optim itself calls these",
    ),
    **dict.fromkeys(
        ["torch.cpu._is_vnni_supported", "torch.ops.mkldnn._is_mkldnn_bf16_supported"],
        "whether the CPU multiplies bytes and bfloat16, as torch's own quantization asks",
    ),
    **dict.fromkeys(
        [f"torch.ops.mkldnn.{name}" for name in ("_linear_pointwise", "_reorder_linear_weight")],
        "packed weights without conversion of each input, as torch.compile uses them",
    ),
    "transformers.Trainer._get_output_dir": "where a checkpoint goes, hyperparameter search included",
    "transformers.Trainer._get_train_sampler": "an order of the Trainer's own, where the arguments ask for it",
}
# The same of instances.
OF_INSTANCES = {
    "argparse.ArgumentParser._actions": "the flags of transformers' parser",
    "datasets.Dataset._fingerprint": "which rows a data set holds, without reading them",
    "transformers.PreTrainedConfig._attn_implementation": "the attention that a model computes by",
}

# What a model declares to transformers.
DECLARED = ["_can_compile_fullgraph", "_can_record_outputs", "_keep_in_fp32_modules", "_no_split_modules"]
DECLARED += ["_skip_keys_device_placement", "_supports_attention_backend", "_supports_flash_attn"]
DECLARED += ["_supports_flex_attn", "_supports_sdpa", "_tied_weights_keys"]
# Private attributes of others that a class of ours defines again.
OVERRIDDEN = {
    **{f"transformers.PreTrainedModel.{name}": "declaration of a model" for name in DECLARED},
    "argparse.HelpFormatter._format_action_invocation": "one name of a flag in the help, not its synonyms",
    "argparse.HelpFormatter._get_help_string": "no default in the help where there is none",
    "peft.tuners.tuners_utils.BaseTuner._check_merge_allowed": "Houlsby's adapters cannot be merged",
    "peft.tuners.tuners_utils.BaseTuner._create_and_replace": "the interface of a tuner",
    "peft.tuners.tuners_utils.BaseTuner._replace_module": "our layers wrap modules that are no linear layers",
    "peft.tuners.tuners_utils.BaseTunerLayer._get_base_layer_device_and_dtype": "of a wrapped module without weight",
    "transformers.PreTrainedModel._init_weights": "the interface of a model",
    "transformers.PreTrainedModel._load_pretrained_model": "stock checkpoints are recognised by their contents",
    "transformers.PreTrainedTokenizerFast._encode_plus": "the release's word splitting before the Rust BPE",
    "transformers.PreTrainedTokenizerFast._save_pretrained": "files that load without the release's splitter say so",
    "transformers.Trainer._clip_grad_norm": "an exact norm on a CPU, where torch's is 0.17% too small",
    "transformers.Trainer._finalize_training": "the newest checkpoint stays, for a run that is killed while evaluated",
    "transformers.Trainer._get_eval_sampler": "predictions come in the order of the rows",
    "transformers.Trainer._get_train_sampler": "rows of similar length, or of several tasks",
    "transformers.Trainer._init_training_state": "the best checkpoint is found by name: a folder can move",
    "transformers.Trainer._run_epoch": "a run that has ended inside an epoch trains no further",
    "transformers.Trainer._save_checkpoint": "weights are checked before, and a replaced checkpoint is not whole",
    "transformers.Trainer._save_rng_state": "all processes have written before trainer_state.json says so",
}


def is_private(name: str) -> bool:
    # The exceptions are named tuples' public interface.
    return name.startswith("_") and not name.startswith("__") and name not in ("_asdict", "_replace")


@pytest.mark.parametrize("path", [*READ, *OVERRIDDEN, *OF_INSTANCES])
def test_the_name_is_there(path):
    if path in OF_INSTANCES:
        owner, name = path.rsplit(".", 1)
        assert f"self.{name}" in inspect.getsource(inspect.getmodule(resolve_name(owner)))
    else:
        resolve_name(path)


def test_all_names_that_are_read_are_listed():
    own, read = set(), set()
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    for node in itertools.chain(*map(ast.walk, trees)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute):
            (own if isinstance(node.ctx, ast.Store) else read).add(node.attr)
    listed = {path.rpartition(".")[2] for path in (*READ, *OF_INSTANCES)}
    assert {name for name in read if is_private(name) and name not in own} <= listed
    assert listed <= read, f"no longer used: {listed - read}"
    overridden = {path.rpartition(".")[2] for path in OVERRIDDEN}
    assert overridden <= own, f"no longer overridden: {overridden - own}"


def test_all_names_that_are_overridden_are_listed():
    listed = {(path.split(".")[-1], id(inspect.unwrap(resolve_name(path.rpartition(".")[0])))) for path in OVERRIDDEN}
    made_by_others = {"_abc_impl", "_backward_cls", "_auto_class"}
    names = {module.name for module in walk_packages(hf_gpt.__path__, "hf_gpt.")} - {"hf_gpt.__main__"}
    members = [each for name in names for each in vars(importlib.import_module(name)).values()]
    for ours in {each for each in members if inspect.isclass(each) and each.__module__ in names}:
        for name in filter(is_private, vars(ours).keys() - made_by_others):
            above = [base for base in ours.__mro__[1:] if not base.__module__.startswith("hf_gpt")]
            if any(name in vars(base) for base in above):
                assert any((name, id(base)) in listed for base in above), f"{ours.__qualname__}.{name}"
