"""
spaCy's rules for splitting a language into words, as data: what `words.json` next to a tokenizer holds.

    python -m hf_gpt.conversion.word_rules en > hf_gpt/model/words_en.json

spaCy is needed here alone, for languages other than English: `pip install 'hf-gpt[languages]'`.
"""

import sys
from importlib import metadata
from typing import Any

from ..model.tokenization_gpt import show_rules


def word_rules(language: str) -> dict[str, Any]:
    """
    The rules of the installed spaCy for the code of a language, such as `de`, with its licence: what `WordSplitter`
    takes, regular expressions, and special cases with their words. A `ValueError` if spaCy is missing, does not have
    the language, or splits it by another library.
    """
    try:
        import spacy

        tokenizer = spacy.blank(language).tokenizer
    except (ImportError, ValueError) as error:
        advice = f"The words of {language!r} need the rules of spaCy (pip install 'hf-gpt[languages]')"
        raise ValueError(f"{advice}: {error}") from error
    if type(tokenizer) is not spacy.tokenizer.Tokenizer:
        raise ValueError(f"spaCy splits {language!r} by no rules for words between spaces, which are needed here.")
    parts = {case: [token[spacy.symbols.ORTH] for token in tokens] for case, tokens in sorted(tokenizer.rules.items())}
    licence = next(file for file in metadata.files("spacy") if file.name == "LICENSE")
    affixes = spacy.util.get_lang_class(language).Defaults
    return {
        "language": language,
        "source": f"spaCy {spacy.__version__}",
        "license": licence.read_text(encoding="utf-8"),
        **{name: list(filter(str.strip, getattr(affixes, name))) for name in ("prefixes", "suffixes", "infixes")},
        "url": tokenizer.url_match.__self__.pattern,
        "token_match": tokenizer.token_match and tokenizer.token_match.__self__.pattern,
        # White space around a case is no part of a word.
        "cases": {case: " ".join(words) for case, words in parts.items() if case == case.strip() != ""},
    }


if __name__ == "__main__":
    sys.stdout.write(show_rules(word_rules(*sys.argv[1:])))
