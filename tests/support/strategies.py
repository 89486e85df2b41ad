"""What hypothesis draws token trees from."""

from hypothesis import strategies as st

sequences = st.lists(st.lists(st.integers(1, 3), max_size=6), min_size=1, max_size=5)
share_limits = st.none() | st.integers(0, 7)
