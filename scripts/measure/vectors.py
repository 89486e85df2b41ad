"""
Time vectors of real sentences: this project, transformers' feature-extraction pipeline and sentence-transformers.

    OMP_NUM_THREADS=1 python scripts/measure/vectors.py --data_dir path/to/data --output_dir outputs/vectors

All have the same random weights in the size of GPT-1, the same tokenizer and the same sentences, premises of SNLI
(`snli/` and `gpt_bpe/` in `--data_dir`); peers take turns with torch's default, as users run them, and with the
products that ours use (`hf_gpt.use_fast_float32`). Times are of the processor. Writes `results.json`.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tables import markdown
from tqdm import tqdm
from transformers import OpenAIGPTConfig, OpenAIGPTModel, pipeline

from hf_gpt import GPTModel, use_fast_float32
from hf_gpt.commands import command, parse_arguments
from hf_gpt.conversion.tokenizers import release_tokenizer
from hf_gpt.features import FeatureExtractor
from hf_gpt.files import flag, write_json
from hf_gpt.tasks import load_task

SENTENCES, BATCH, OURS = 256, 32, "hf_gpt"


@dataclass
class VectorArguments:
    """What to time."""

    data_dir: str = flag(help="Folder of the data sets' folders.")
    output_dir: str = flag(help="Folder of results.json.")
    rounds: int = flag(3, "Timed turns of each contender.")


def embedders(folder: Path, data_dir: Path) -> dict[str, Any]:
    """Each contender's way from texts to the mean of the last hidden states, `(texts, 768)`."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    tokenizer = release_tokenizer(data_dir / "gpt_bpe", task_template=False)
    theirs = OpenAIGPTModel(OpenAIGPTConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)).eval()
    theirs.save_pretrained(folder / "theirs")
    ours = GPTModel.from_pretrained(folder / "theirs").eval()
    ours.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformer = Transformer(str(folder))
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    embedder = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    stock = pipeline("feature-extraction", model=theirs, tokenizer=tokenizer)
    extractor = FeatureExtractor(ours, tokenizer, pooling="mean")

    def one_by_one(texts: list[str]) -> np.ndarray:
        return np.stack([states[0].mean(0).numpy() for states in stock(texts, return_tensors=True)])

    def in_batches(texts: list[str]) -> np.ndarray:
        lengths = [len(ids) for ids in tokenizer(texts)["input_ids"]]
        states = stock(texts, batch_size=BATCH, return_tensors=True)
        return np.stack([states[row][0, :length].mean(0).numpy() for row, length in enumerate(lengths)])

    return {
        OURS: lambda texts: extractor(texts).states[12].numpy(),
        "openai-gpt, pipeline": lambda texts: np.stack(
            [s[0].mean(0).numpy() for s in stock(texts, return_tensors=True)]
        ),
        f"openai-gpt, pipeline, batches of {BATCH}": in_batches,
        "sentence-transformers": lambda texts: embedder.encode(texts, batch_size=BATCH),
    }


def table(times: dict[str, dict[str, list[float]]], differences: dict[str, float]) -> str:
    """A Markdown table: sentences a second, and how many times as long each took, by default and with our products."""
    rows, seconds = [], {name: [statistics.median(each) for each in of.values()] for name, of in times.items()}
    for name, found in seconds.items():
        ratios = ", ".join(f"{each / seconds[OURS][-1]:.2f} x" for each in found)
        rows.append([name, f"{SENTENCES / found[0]:.0f}", ratios, f"{differences[name]:.0e}"])
    return markdown(["mean of the last states", "sentences/s", "time", "vectors differ by"], rows)


@command()
def main() -> None:
    """Time all, print the table and write what it is made of."""
    (args,) = parse_arguments((VectorArguments,), description=__doc__)
    transformers.logging.set_verbosity_error()  # the pipeline advises to use a data set
    premises = load_task("snli", Path(args.data_dir) / "snli").splits["validation"].unique("premise")
    texts = [premises[index] for index in np.random.default_rng(0).permutation(len(premises))[:SENTENCES]]
    torch.manual_seed(0)
    fast = use_fast_float32()
    with tempfile.TemporaryDirectory() as folder:
        ways = embedders(Path(folder), Path(args.data_dir))
        vectors = {name: embed(texts) for name, embed in ways.items()}
        times = {name: {str(each): [] for each in ([fast] if name == OURS else {False, fast})} for name in ways}
        for _ in tqdm(range(args.rounds), unit="round"):
            for name, settings in times.items():
                for setting in settings:
                    use_fast_float32(setting == "True")
                    start = time.process_time()
                    ways[name](texts)
                    settings[setting].append(time.process_time() - start)
    differences = {name: float(np.abs(value - vectors[OURS]).max()) for name, value in vectors.items()}
    cpu = {"device": torch.cpu.get_capabilities()["cpu_name"], "threads": torch.get_num_threads()}
    tables = [table(times, differences)]
    write_json(Path(args.output_dir) / "results.json", cpu | {"tables": tables, "seconds": times} | differences)
    print(*tables)


if __name__ == "__main__":
    main()
