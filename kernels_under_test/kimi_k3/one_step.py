"""Single steps of the Kimi K3 layers over data in which every constant counts.

On unit normal data most constants hide: an eps of 1e-5 stands beside a mean square of one, and a query's eps beside a sum of
squares of ten. Here the streams, the low-rank projections and some heads are made so small that every eps is about as large as
what it is added to; the shared expert's projection is so large that its activation saturates; half of the experts are twins.
All scales are powers of two, so a floating-point number loses no bit and rounding is as large, relative to it, as anywhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from kernels_under_test.contract import Exact, Problem, Role, Shape, X
from kernels_under_test.kimi_k3.reference import KimiOracle

STREAM = (2.0**-8, 2.0**-9)
"""Even and odd rows of the residual streams: 3.9e-3 and 2.0e-3, while the root of a norm's eps is 3.2e-3."""
INTO_STREAM = {"o_proj": 2.0**-7, "latent_up": 2.0**-7, "shared_down": 2.0**-12, "dense_down": 2.0**-12}
"""What a layer adds to the streams stays as small as they are."""
LATENT = 2.0**-3
"""The experts' input: their output, about its square, is then as small as the root of the latent norm's eps."""
LOUD = 2.0**3
"""The shared expert's gate and up: both bounds of its activation (4 and 25) are reached."""
LOW_RANK = 2.0**-8
"""The low-rank query and the latent of the new token, before their norms."""
RESIDUAL_QUERY = 2.0**-3
"""The queries of the residuals: scores near zero, so that rounding of the sources hardly moves their shares, which moves all else."""
QUERY = 4.0
"""The query behind its norm: its scale decides which tokens are looked at."""
SMALL_KEY, NO_KEY, SMALL_VALUE = 2.0**-10, 2.0**-24, 2.0**-4
"""Convolution weights of query and key, of the key alone, and of values (with the state): see :func:`head_kinds`."""
STILL_SPEED = -8.0
"""Log speed of a still head's forget gate: it decays by exp(bound / 2), whatever its input is."""
TWIN_GAP = 2.0**-10
"""How much larger one twin's bias is than the other's, where they are not the same; a choice in bf16 does not see it."""
STILL_FLOOR = 1e-4
"""Honest states of still heads are off by 2e-6 to 3e-6 (k3-tiny, stock path and house candidate); kept in bf16 by more than 5e-4."""


def head_kinds(heads: int) -> list[str]:
    """Return the kind of each KDA head: ``plain``; ``small_key``: query and key about the size of the root of their eps;
    ``small_value``: core output about the size of the root of its norm's eps; ``still``: the key is nothing beside its eps, so a
    step multiplies the state by a decay that no rounded number enters.

    With fewer heads than kinds the first of these in the order still, small key, small value, plain are there.
    """
    order = ("still", "small_key", "small_value", "plain")
    return [order[head % len(order)] for head in range(heads)]


class KimiStepOracle(KimiOracle):
    """The oracle with :class:`kernels_under_test.contract.StepOracle` added."""

    stress_regime = "ties"
    left_out = (".gamma", ".query", ".router_bias", "eps.renormalise")

    def stress(self, problem: Problem, shape: Shape, tensors: Mapping[str, Tensor], only: Collection[Role]) -> None:
        """Scale freshly filled tensors in place; what a layer does not have is left out."""
        facts = problem.facts
        row_scale = torch.tensor(STREAM)[torch.arange(shape.rows) % len(STREAM)]
        for name in ("prefix_in", "blocks_in", X):
            if name in tensors and (name == X or Role.METADATA in only):
                values = tensors[name]
                values.mul_(row_scale.reshape(-1, *[1] * (values.dim() - 1)).to(values.device, values.dtype))
        if Role.WEIGHT in only:
            tensors["final_res.query"].mul_(RESIDUAL_QUERY)
        for index, kind in facts["layers"]:
            own = {
                n.removeprefix(f"layers.{index}."): t for n, t in tensors.items() if n.startswith(f"layers.{index}.")
            }
            if Role.WEIGHT in only:
                _common(own, facts["top_k"])
                if kind == "kda":
                    _kda(own, facts["kda_dim"])
                elif kind == "mla":
                    own["in_proj"][..., : facts["q_lora"] + facts["kv_lora"], :].mul_(LOW_RANK)
                    own["q_b"].mul_(QUERY)
            if Role.STATE in only and "recurrent_state" in own:
                state = own["recurrent_state"]
                for head, what in enumerate(head_kinds(state.shape[-3])):
                    if what == "small_value":
                        state[..., head, :, :].mul_(SMALL_VALUE)

    def exact(self, problem: Problem, shape: Shape, initial: Mapping[str, Tensor]) -> Sequence[Exact]:
        """Return the still heads of every recurrent state, in the slots of live requests."""
        live = initial["slots"][initial["slots"] > 0].long()
        found = []
        for spec in problem.tensors(shape):
            if spec.name.endswith(".recurrent_state"):
                where = torch.zeros(spec.shape[:-1], dtype=torch.bool, device=live.device)
                for head, kind in enumerate(head_kinds(spec.shape[-3])):
                    if kind == "still":
                        where[..., live, head, :] = True
                found.append(Exact("still heads", spec.name, where, STILL_FLOOR))
        return found

    def owners(self, problem: Problem, shape: Shape, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the request of each row of a state that one step writes, 0 where it writes none."""
        found = {}
        slots, mapping = initial["slots"].reshape(shape.requests, -1).long(), initial["slot_mapping"][0]
        for spec in problem.tensors(shape):
            if spec.role is not Role.STATE:
                continue
            owner = torch.zeros(spec.shape[:-1], dtype=torch.int64, device=slots.device)
            before_slots = len(spec.shape) - (4 if spec.name.endswith(".recurrent_state") else 3)
            for request in range(shape.requests):
                if spec.name.endswith(".kv_cache"):
                    rows = slice(request * shape.query_tokens, (request + 1) * shape.query_tokens)
                    for rank in range(len(mapping)):
                        written = mapping[rank, rows]
                        owner[rank].view(-1)[written[written >= 0]] = request
                else:
                    owner[(slice(None),) * before_slots + (slots[request],)] = request
            found[spec.name] = owner
        return found

    def misordered(self, problem: Problem, initial: Mapping[str, Tensor], expert_ids: Tensor) -> int:
        """Count chosen experts whose twin (same router weights) was not chosen though it comes first."""
        count, routers = 0, [f"layers.{index}.router" for index, _ in problem.facts["layers"]]
        for place, router in enumerate(name for name in routers if name in initial):
            first = _first_twin(initial[router], initial[f"{router}_bias"])
            ids = expert_ids[:, place].long()
            chosen = torch.zeros(*ids.shape[:2], len(first), dtype=torch.bool, device=ids.device)
            chosen.scatter_(2, ids, True)
            better = first[ids]
            count += int((~chosen.gather(2, better.clamp(min=0)) & (better >= 0)).sum())
        return count


def _common(own: Mapping[str, Tensor], top_k: int) -> None:
    scales = {"latent_down": LATENT, "shared_gate_up": LOUD, "dense_gate_up": LOUD, "attn_res.query": RESIDUAL_QUERY}
    scales["mlp_res.query"] = RESIDUAL_QUERY
    for name, scale in (INTO_STREAM | scales).items():
        if name in own and own[name].is_floating_point():
            own[name].mul_(scale)
    if "router_bias" in own:
        _twins(own["router_bias"], top_k)


def _twins(bias: Tensor, top_k: int) -> None:
    """Make the biases of twins the same, or different by the gap: by pairs 0, the second larger, 0, the first larger."""
    pairs = bias[: len(bias) // 2 * 2].view(-1, 2)
    gaps = torch.tensor((0.0, TWIN_GAP, 0.0, -TWIN_GAP), dtype=bias.dtype, device=bias.device)
    pairs[:, 1] = pairs[:, 0] + gaps[torch.arange(len(pairs), device=bias.device) % len(gaps)]
    if top_k % 2 == 0 and len(pairs) > 1:
        # One expert is always chosen and its twin never, so that the last place goes to one of a pair in every row.
        pairs[-1] = torch.tensor((2.0, -2.0), dtype=bias.dtype, device=bias.device)


def _kda(own: Mapping[str, Tensor], dim: int) -> None:
    conv, a_log = own["conv"], own["a_log"]
    q, k, v = conv.view(*conv.shape[:-2], 3, -1, dim, conv.shape[-1]).unbind(-4)
    for head, kind in enumerate(head_kinds(a_log.shape[-1])):
        if kind == "small_key":
            q[..., head, :, :].mul_(SMALL_KEY)
            k[..., head, :, :].mul_(SMALL_KEY)
        elif kind == "small_value":
            v[..., head, :, :].mul_(SMALL_VALUE)
        elif kind == "still":
            k[..., head, :, :].mul_(NO_KEY)
            a_log[..., head] = STILL_SPEED


def _first_twin(router: Tensor, bias: Tensor) -> Tensor:
    """Return for each expert the neighbour with the same router weights that comes before it, -1 where there is none."""
    experts = torch.arange(len(bias), device=bias.device)
    other = (experts ^ 1).clamp(max=len(bias) - 1)
    same = (router == router[other]).all(dim=1) & (other != experts)
    ahead = (bias[other] > bias) | ((bias[other] == bias) & (other < experts))
    return torch.where(same & ahead, other, -1)


def oracle() -> KimiStepOracle:
    """Return the oracle; it holds nothing between runs."""
    return KimiStepOracle()
