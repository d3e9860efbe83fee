"""The features of a serving engine that a specialised directory has to take a stand on."""

from __future__ import annotations

KNOWN_FEATURES: dict[str, str] = {
    "adaptive_verification": "the number of verified tokens changes from step to step",
    "cuda_graphs": "the decode step is captured once and replayed",
    "data_parallel": "several replicas share requests, attention is not split",
    "decode_context_parallel": "a request's cached tokens are spread over ranks during decode",
    "dual_batch_overlap": "two half batches overlap computation and communication",
    "expert_parallel": "experts are spread over ranks",
    "kv_offload": "cache pages move to host memory and back",
    "kv_transfer": "cache pages are sent to or received from other instances",
    "lora": "adapters are applied to the model's weights per request",
    "pipeline_parallel": "layers are spread over ranks",
    "prefill_context_parallel": "a prompt's tokens are spread over ranks during prefill",
    "prefix_caching": "requests share cache pages of a common prefix",
    "sleep_mode": "weights and caches are released and restored while the process lives",
    "speculative_decoding": "several proposed tokens of a request are verified in one step",
    "variable_context_length": "requests of one step have different numbers of cached tokens",
    "weight_updates": "weights are replaced while the process lives",
}
"""Name and meaning of every feature that a manifest may name."""

MANDATORY_BY_DEFAULT = ("decode_context_parallel", "variable_context_length")
