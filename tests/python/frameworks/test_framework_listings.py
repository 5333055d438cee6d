"""The listings of pages that need PyTorch, JAX or mpi4py, which are all installed here."""

from test_listings import PAGES, imported, test_python  # noqa: F401  Here no page is left out for its frameworks.


def test_no_page_is_left_out():
    assert {"torch", "jax", "mpi4py"} <= set().union(*map(imported, PAGES))
    for package in ("torch", "jax", "mpi4py"):
        __import__(package)
