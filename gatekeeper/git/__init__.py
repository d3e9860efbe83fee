"""Git as an object store: bare mirrors, trees read raw, comparisons of trees. Nothing is ever checked out."""
