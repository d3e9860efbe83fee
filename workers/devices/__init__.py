"""Where the tensors of a race live: in the machine's own memory or on an accelerator."""
