"""Features are the hidden states of single texts, whatever the batch, the shard, the number of processes or a kill."""

import json
import re
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import load_dataset
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from hf_gpt.commands import parse_arguments
from hf_gpt.features import FeatureExtractor, resolve_layers, word_spans
from hf_gpt.features.shards import CSV, RESULT, SETTINGS, FeatureArguments, extract, load_extractor

from ..support.runs import SAME_PRODUCTS, finish, run_command, start_run
from ..support.task_files import jsonl, write
from ..support.tiny import MULTIPLIES

TEXTS = [
    "She didn't open the door.",
    "Yes",
    "A tale of two old houses by the sea,\nand of a dog called Gutenberg.",
    "",
    "The rain fell all night upon the roofs of the town. " * 12,  # longer than the context
    "NA",
    'He said: "No, never!"',
]
LONG, LAYERS = 4, [0, 1, 2]


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint):
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return AutoModel.from_pretrained(tiny_checkpoint)


@pytest.fixture
def text_file(tmp_path, own_datasets_cache):
    rows = [{"text": text, "label": index % 2, "list": [index]} for index, text in enumerate(TEXTS)]
    return write(tmp_path, {"texts.jsonl": jsonl(*rows)}) / "texts.jsonl"


def flags_of(model, file, output, *flags):
    required = ["--model_name_or_path", model, "--input_files", file, "--output_dir", output, "--use_cpu", "true"]
    return [*map(str, required), *map(str, flags)]


def arguments(*flags):
    return parse_arguments((FeatureArguments,), flags_of(*flags))[0]


@pytest.fixture
def run(tiny_checkpoint, text_file, tmp_path):
    """Extracts the features of the texts into a folder of a name."""
    return lambda name, *flags: extract(arguments(tiny_checkpoint, text_file, tmp_path / name, *SAME_PRODUCTS, *flags))


def states_of(model, tokenizer, *texts):
    """Hidden states of one text, or pair, read alone, `(tokens, width)` a layer, and its encoding."""
    encoded = tokenizer(*texts, truncation=True, max_length=model.config.n_positions, return_tensors="pt")
    if not encoded["input_ids"].shape[1]:
        return [torch.empty(0, model.config.n_embd)] * (model.config.n_layer + 1), encoded
    with torch.no_grad():
        hidden_states = model(**encoded, output_hidden_states=True).hidden_states
    return [states[0] for states in hidden_states], encoded


def pooled_by_hand(states, encoded, kind):
    if kind == "tokens":
        return states
    if kind.startswith("word"):
        words = {}
        for index, word in enumerate(zip(encoded.sequence_ids(0), encoded.word_ids(0), strict=True)):
            words.setdefault(word, []).append(states[index])
        own = [each for (_, number), each in words.items() if number is not None]
        pooled = [torch.stack(word).mean(0) if kind == "word means" else word[-1] for word in own]
        return torch.stack(pooled) if pooled else states[:0]
    if not len(states):
        return torch.full((1, states.shape[1]), float("nan"))
    return states.mean(0, keepdim=True) if kind == "mean" else states[-1:]


KINDS = {
    "tokens": {"pooling": "none"},
    "word means": {"pooling": "none", "unit": "word"},
    "words' last": {"pooling": "none", "unit": "word", "word_pooling": "last"},
    **{pooling: {"pooling": pooling} for pooling in ("mean", "last", "classify")},
}


@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
@pytest.mark.parametrize("template", [False, True], ids=["plain", "template"])
@pytest.mark.parametrize("kind", KINDS)
def test_features_are_those_of_single_texts(model, tokenizer, monkeypatch, kind, template, pairs):
    monkeypatch.setattr(tokenizer, "task_template", template)
    if kind == "classify" and not template:
        with pytest.raises(ValueError, match="task_template = True"):
            FeatureExtractor(model, tokenizer, pooling=kind)
        return
    seconds = [TEXTS[::-1]] if pairs else []
    features = FeatureExtractor(model, tokenizer, "all", tokens_per_batch=100, **KINDS[kind])(TEXTS, *seconds)
    assert list(features.states) == LAYERS
    assert features.offsets[-1] == len(features.states[0])
    assert (features.cut_tokens[LONG] > 0, features.cut_tokens[0]) == (True, 0)
    for index, texts in enumerate(zip(TEXTS, *seconds, strict=True)):
        states, encoded = states_of(model, tokenizer, *texts)
        assert features.tokens[index] == len(states[0])
        units = slice(*features.offsets[index : index + 2])
        for layer in LAYERS:
            expected = pooled_by_hand(states[layer], encoded, kind)
            torch.testing.assert_close(features.states[layer][units], expected, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    ("mode", "pooling", "template"),
    [("mean", "mean", False), ("lasttoken", "last", False), ("lasttoken", "classify", True), ("mean", "mean", True)],
)
def test_sentence_transformers_give_our_features(model, tiny_checkpoint, mode, pooling, template, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="needs pip install sentence-transformers")
    modules = library.sentence_transformer.modules
    transformer = modules.Transformer(str(tiny_checkpoint), processor_kwargs={"task_template": template})
    pool = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode=mode)
    embedder = library.SentenceTransformer(modules=[transformer, pool], device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=template)
    texts = [*TEXTS[:2], TEXTS[LONG]]
    expected = FeatureExtractor(model, tokenizer, pooling=pooling)(texts).states[2]
    embedder.save(str(tmp_path / "saved"))
    for each in (embedder, library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")):
        torch.testing.assert_close(each.encode(texts, convert_to_tensor=True), expected, rtol=0, atol=1e-5)


def test_extractors_that_are_refused(tiny_checkpoint, tokenizer):
    model = AutoModel.from_pretrained(tiny_checkpoint)
    with pytest.raises(ValueError, match="men is unknown"):
        FeatureExtractor(model, tokenizer, pooling="men")
    with pytest.raises(ValueError, match="training mode"):
        FeatureExtractor(model.train(), tokenizer)


def test_words_and_layers(tokenizer):
    # The release's words: the contraction is two.
    spans = word_spans(tokenizer(["She  didn't see Gutenberg."]).encodings[0])
    assert spans[:, :2].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 8], [8, 9]]
    assert resolve_layers("all", 3) == resolve_layers(["all"], 3) == [0, 1, 2, 3]
    assert resolve_layers(["-1", 1, "1", -4], 3) == [0, 1, 3]


@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_files_and_card_of_the_features(pooling, run, model, tokenizer, tmp_path, monkeypatch):
    record = run("out", "--pooling", pooling, "--layers", "all", "--rows_per_shard", 3)
    output, expected = tmp_path / "out", FeatureExtractor(model, tokenizer, "all", pooling=pooling)(TEXTS)
    rows = load_dataset(str(output), split="train")
    assert rows["row"][:] == list(range(len(TEXTS)))
    for layer in LAYERS:
        wanted = np.split(expected.states[layer].numpy(), expected.offsets[1:-1])
        for ours, theirs in zip(rows.with_format("numpy")[f"layer_{layer}"][:], wanted, strict=True):
            found = np.reshape([*ours], theirs.shape)
            np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-5)
    assert record == json.loads((output / RESULT).read_text())
    assert (record["rows"], record["shards"], record["truncated_rows"], record["empty_rows"]) == (7, 3, 1, 1)
    assert record["truncated_tokens"] == sum(rows["truncated"]) == expected.cut_tokens.sum()
    card = (output / "README.md").read_text()
    assert "rows truncated to 64 tokens: 1 (they lost 92 tokens in all)" in card
    assert f"rows without any token, which have {'no' if pooling == 'none' else 'NaN for'} states: 1" in card
    monkeypatch.chdir(output)
    scope: dict = {}
    exec(re.search(r"```python\n(.*?)```", card, flags=re.DOTALL)[1], scope)
    assert scope["states"].shape == ((expected.offsets[1], 32) if pooling == "none" else (32,))


def test_columns_next_to_the_states(run, tmp_path):
    run("out", "--pooling", "none", "--unit", "word", "--keep_columns", "label", "text")
    rows = load_dataset(str(tmp_path / "out"), split="train")
    assert rows["label"][:] == [index % 2 for index in range(len(TEXTS))]
    assert [count > 0 for count in rows["truncated"]] == [index == LONG for index in range(len(TEXTS))]
    row = rows[6]
    words = [row["text"][start:end] for start, end in zip(row["word_start"], row["word_end"], strict=True)]
    assert words == row["word"] == ["He", "said", ":", '"', "No", ",", "never", "!", '"']
    assert np.shape(row["layer_2"]) == (9, 32)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_words_are_read_after_so_many_words(pooling, run, model, tokenizer, tmp_path):
    """As a loop over single windows gives them; nothing of a long text is lost."""
    run("out", "--pooling", "none", "--unit", "word", "--word_pooling", pooling, "--context_words", 3)
    rows = load_dataset(str(tmp_path / "out"), split="train")
    assert max(rows["truncated"]) == 0
    for text, found in zip(TEXTS, rows["layer_2"][:], strict=True):
        (encoding,) = tokenizer([text]).encodings
        words = word_spans(encoding)[:, :2]
        assert len(words) == len(found)
        for number in {*range(min(5, len(words))), *range(len(words))[-2:]}:
            begin, (first, end) = words[max(0, number - 3), 0], words[number]
            with torch.no_grad():
                states = model(torch.tensor([encoding.ids[begin:end]])).last_hidden_state[0, first - begin :]
            expected = states[-1] if pooling == "last" else states.mean(0)
            np.testing.assert_allclose(found[number], expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="context_words 3: it is of unit word"):
        run("other", "--context_words", 3)


def test_template_of_a_fine_tuned_model_is_kept(tiny_checkpoint, text_file, tmp_path):
    """By default special tokens are added where the tokenizer was saved so; pairs and classify always have them."""
    tuned = tmp_path / "tuned"
    AutoModelForSequenceClassification.from_pretrained(tiny_checkpoint, num_labels=3).save_pretrained(tuned)
    AutoTokenizer.from_pretrained(tiny_checkpoint, task_template=True).save_pretrained(tuned)
    cases = [(tiny_checkpoint, []), (tuned, []), (tiny_checkpoint, ["--pooling", "classify"])]
    cases += [(tiny_checkpoint, ["--pair_column", "label"])]
    read = [arguments(name, text_file, tmp_path / "out", *flags) for name, flags in cases]
    used = [load_extractor(args, torch.device("cpu")).tokenizer.task_template for args in read]
    assert used == [False, True, True, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_rounded_weights_are_near(dtype, run, tmp_path):
    if dtype == "int8" and not MULTIPLIES[dtype]:
        pytest.skip("this CPU has no instructions for it")
    for name in ("float32", dtype):
        run(name, "--dtype", name)
    exact, near = (states_in(tmp_path / name) for name in ("float32", dtype))
    assert not np.array_equal(exact, near, equal_nan=True)
    np.testing.assert_allclose(near, exact, rtol=0, atol=0.05)


def states_in(output, layer=2):
    """Pooled states of a folder, `(rows, width)`."""
    return load_dataset(str(output), split="train").with_format("numpy")[f"layer_{layer}"][:]


WORD_COLUMNS = ["sequence", "word_start", "word_end", "word_tokens", "word"]


@pytest.mark.parametrize(
    ("flags", "columns"),
    [("", []), ("--pooling none --unit word", WORD_COLUMNS), ("--pooling none", ["input_ids"])],
)
def test_lines_of_csv_are_the_rows_of_the_shards(flags, columns, run, tmp_path):
    """A line per text, word or token; one of the shards has no token."""
    run("out", "--csv", "true", "--layers", 0, 2, "--rows_per_shard", 1, "--keep_columns", "label", *flags.split())
    rows = load_dataset(str(tmp_path / "out"), split="train").to_pandas()
    if flags:
        rows = rows.explode([*columns, "layer_0", "layer_2"]).dropna()
    columns = ["row", "tokens", "truncated", "label", *columns]
    names = [f"layer_{layer}_{index}" for layer in (0, 2) for index in range(32)]
    found = pd.read_csv(tmp_path / "out" / CSV, keep_default_na=False, na_values=dict.fromkeys(names, ""))
    assert [*found.columns] == columns + names
    for name in columns:
        assert found[name].tolist() == rows[name].tolist()
    expected = np.concatenate([np.stack(rows[name]) for name in ("layer_0", "layer_2")], axis=1)
    np.testing.assert_array_equal(found.iloc[:, len(columns) :].to_numpy(np.float32), expected)


def test_csv_of_finished_features_is_made_later_and_leaves_with_them(run, tmp_path):
    def shards():
        return [path.stat().st_mtime_ns for path in sorted((tmp_path / "out" / "data").iterdir())]

    run("out")
    before = shards()
    assert not (tmp_path / "out" / CSV).exists()
    run("out", "--csv", "true")
    assert shards() == before
    assert (tmp_path / "out" / CSV).read_text().startswith('"row",')
    run("out", "--overwrite_output_dir", "--pooling", "last")
    assert not (tmp_path / "out" / CSV).exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--text_column sentence", r"texts.jsonl, line 1: .*'sentence'"),
        ("--text_column label", r"texts.jsonl, line 1: .*'label' holds 0"),
        ("--pair_column second", "'second'"),
        ("--keep_columns id", "'id'"),
        ("--keep_columns tokens", "--keep_columns tokens"),
        ("--csv true --keep_columns label list", "--keep_columns list: CSV has no lists"),
        ("--layers 3", "there is no 3; the model has 0 .* to 2"),
        ("--layers last", "there is no last"),
        ("--unit word", "choose pooling none"),
        ("--max_length 65", "max_length 65"),
        ("--input_files /dev/null", "/dev/null"),
        ("--input_files none.txt", "none.txt"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(flags, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.txt").touch()
    with pytest.raises((ValueError, OSError), match=message):
        run("out", *flags.split())
    assert not (tmp_path / "out").exists()


def test_folder_of_something_else_is_left_alone(run, tmp_path):
    file = tmp_path / "out" / "data" / "features-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    for flags in ([], ["--overwrite_output_dir"]):
        with pytest.raises(ValueError, match="holds something else than features"):
            run("out", *flags)
    assert [*(tmp_path / "out").rglob("*.*")] == [file]


def test_features_of_other_settings_are_not_mixed(run, text_file, tmp_path):
    def files():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}

    run("out", "--rows_per_shard", 2)
    before = files()
    with pytest.raises(ValueError, match=r"other settings \(layers, pooling\)"):
        run("out", "--rows_per_shard", 2, "--pooling", "last", "--layers", 0)
    run("out", "--rows_per_shard", 2, "--tokens_per_batch", 64)
    assert before == files()
    run("out", "--overwrite_output_dir")
    assert [path.name for path in (tmp_path / "out" / "data").iterdir()] == ["features-00000-of-00001.parquet"]
    text_file.write_text(text_file.read_text() + '{"text": "More", "label": 0}\n')
    with pytest.raises(ValueError, match=r"other settings \(input_files, rows\)"):
        run("out")


def contents(output):
    """The files of a folder, without those that name it."""
    files = {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.rglob("*.*"))}
    return files | dict.fromkeys((SETTINGS, "README.md"), b"")


def test_stopped_before_any_rename_resumes(run, tmp_path, monkeypatch):
    """Whichever file would have got its name next: the same command makes the folder that nothing ever stopped."""
    flags, replace, left = ["--rows_per_shard", 3], Path.replace, []
    run("whole", *flags)

    def replace_or_die(path, target):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return replace(path, target)

    for moment in range(1 + 3 + 1):  # settings, three shards, result
        left[:] = range(moment)
        monkeypatch.setattr(Path, "replace", replace_or_die)
        with pytest.raises(KeyboardInterrupt):
            run(f"stopped-{moment}", *flags)
        monkeypatch.setattr(Path, "replace", replace)
        assert not (tmp_path / f"stopped-{moment}" / RESULT).exists()
        run(f"stopped-{moment}", *flags)
        assert contents(tmp_path / f"stopped-{moment}") == contents(tmp_path / "whole")


def test_two_processes_give_what_one_gives(run, tiny_checkpoint, tmp_path):
    many = tmp_path / "many.txt"
    many.write_text("".join(f"{'word ' * (number % 23)}{number}\n" for number in range(500)))
    flags = ["--rows_per_shard", 100, "--layers", "all"]
    run("whole", "--input_files", many, *flags)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        launcher = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    logs, processes = [tmp_path / "log0", tmp_path / "log1"], []
    for rank, log in enumerate(logs):
        environment = launcher | {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        words = ["extract_features", *flags_of(tiny_checkpoint, many, tmp_path / "out", *flags)]
        processes.append(start_run(log, *words, function=run_command, **environment))
    for process, log in zip(processes, logs, strict=True):
        finish(process, log)
    assert "are to be made by 2 processes" in logs[0].read_text()
    for layer in LAYERS:
        ours, theirs = (states_in(tmp_path / name, layer) for name in ("out", "whole"))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert (tmp_path / "out" / RESULT).read_text() == (tmp_path / "whole" / RESULT).read_text()
