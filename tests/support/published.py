"""What version 0.1 published: model, heads, adapter and Space, with the code that went with them."""

from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "data" / "published_0.1.tar.xz"
