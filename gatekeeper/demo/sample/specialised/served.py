"""What this directory serves, and not one shape more: the manifest says the same."""

ROWS = (1, 2)
CONTEXT = range(32, 65)
PAGE_SIZES = (4,)
CONTEXT_RANKS = (2,)


def refusal(shape):
    """Return why a shape is not served, all reasons in one line, or None."""
    found = (
        ("rows", shape.rows, ROWS),
        ("query_tokens", shape.query_tokens, (1,)),
        ("context", shape.context, CONTEXT),
        ("page_size", shape.page_size, PAGE_SIZES),
        ("tensor_parallel", shape.tensor_parallel, (1,)),
        ("decode_context_parallel", shape.decode_context_parallel, CONTEXT_RANKS),
        ("expert_parallel", shape.expert_parallel, (1,)),
    )
    return "; ".join(f"{name} must be in {wanted}, found {value}" for name, value, wanted in found if value not in wanted) or None
