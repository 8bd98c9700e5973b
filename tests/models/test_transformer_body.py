"""The transformer body: one pass, one prefix and the cache agree, the future stays hidden, and it learns."""

import itertools

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.transformer_body import TransformerBody

NUM_TOKENS, LENGTH, WIDTH = 3, 5, 8


def make_body(seed: int = 0, num_layers: int = 2) -> TransformerBody:
    body = TransformerBody(NUM_TOKENS, LENGTH, WIDTH, num_layers, heads=2)
    body.initialise(torch.Generator().manual_seed(seed))
    return body.double()


def all_sequences() -> Tensor:
    return torch.tensor(list(itertools.product(range(NUM_TOKENS), repeat=LENGTH)))


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_one_pass_equals_each_prefix_alone(num_layers: int) -> None:
    body, tokens = make_body(num_layers=num_layers), all_sequences()
    together = body.prefix_states(tokens)
    assert together.shape == (NUM_TOKENS**LENGTH, LENGTH + 1, WIDTH)
    for depth in range(LENGTH + 1):
        torch.testing.assert_close(body.prefix_states(tokens[:, :depth])[:, -1], together[:, depth])
        torch.testing.assert_close(body.states_at(tokens, torch.full((len(tokens),), depth)), together[:, depth])


@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_sampling_with_the_cache_equals_one_pass(num_layers: int) -> None:
    body, tokens = make_body(num_layers=num_layers), all_sequences()
    expected = body.features(body.prefix_states(tokens))
    state = body.begin(len(tokens))
    for depth in range(LENGTH + 1):
        assert state.shape == (len(tokens), WIDTH + (depth + 1) * num_layers * 2 * WIDTH)
        torch.testing.assert_close(body.features(state), expected[:, depth])
        if depth < LENGTH:
            state = body.extend(state, tokens[:, : depth + 1])


def test_rows_of_one_batch_may_have_different_depths(generator: torch.Generator) -> None:
    body, tokens = make_body(), all_sequences()
    depths = torch.randint(LENGTH + 1, (len(tokens),), generator=generator)
    expected = body.prefix_states(tokens)[torch.arange(len(tokens)), depths]
    torch.testing.assert_close(body.states_at(tokens, depths), expected)


def test_future_tokens_do_not_change_a_prefix_but_all_past_ones_do(generator: torch.Generator) -> None:
    body, tokens = make_body(), all_sequences()
    outputs = body.prefix_states(tokens)
    for place in range(LENGTH):
        other = tokens.clone()
        other[:, place] = (other[:, place] + 1) % NUM_TOKENS
        moved = (body.prefix_states(other) - outputs).abs().amax(dim=-1)
        assert not moved[:, : place + 1].any()
        assert moved[:, place + 1 :].min().item() > 1e-6


def test_the_same_letters_in_another_order_are_another_prefix() -> None:
    body = make_body()
    outputs = body.prefix_states(torch.tensor([[0, 1, 2], [1, 0, 2]]))[:, -1]
    assert (outputs[0] - outputs[1]).abs().max().item() > 1e-3


def test_gradients_are_those_of_finite_differences() -> None:
    body, tokens = make_body(), all_sequences()[100:102]
    names = ["body.start", "body.embedding.weight", "body.blocks.0.projections.weight"]
    features = Features(body)
    weights = tuple(dict(features.named_parameters())[name].detach().clone().requires_grad_() for name in names)

    def outputs(*values: Tensor) -> Tensor:
        return torch.func.functional_call(features, dict(zip(names, values, strict=True)), (tokens,))

    assert torch.autograd.gradcheck(outputs, weights)


class Features(torch.nn.Module):
    """The body's features as a module's forward, which is what functional_call wants."""

    def __init__(self, body: TransformerBody) -> None:
        super().__init__()
        self.body = body

    def forward(self, tokens: Tensor) -> Tensor:
        return self.body.features(self.body.prefix_states(tokens))


def test_the_tree_sweep_agrees_with_one_pass_over_all_sequences(generator: torch.Generator) -> None:
    network = FlowNetwork(NUM_TOKENS, LENGTH, (1,), WIDTH, 2, make_body())
    torch.nn.init.normal_(network.policy_head.weight, generator=generator)
    network = network.double()
    log_policy = network.evaluate(AtPrefixes(all_sequences())).heads().log_policy.detach()
    for depth, level in enumerate(network.tree_log_policies()):
        below = NUM_TOKENS ** (LENGTH - depth)
        torch.testing.assert_close(level.repeat_interleave(below, dim=0), log_policy[:, depth])


def test_the_same_seed_draws_the_same_weights_whatever_the_global_state() -> None:
    torch.manual_seed(1)
    first = make_body().state_dict()
    torch.manual_seed(2)
    again = make_body().state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = make_body(seed=1).state_dict()
    assert all(name.endswith("bias") or "norm" in name for name in first if torch.equal(first[name], other[name]))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ConfigError, match="width 30 is not a multiple of 4 heads"):
        resolve_config([{"model": {"body": "transformer", "width": 30}}])


class Ends(Task):
    """The first and the last letter must agree: only a body that reads both ends of a prefix can know."""

    name, description, alphabet, length, mode_threshold = "ends", "a test task", Alphabet("ABC"), LENGTH, 0.9

    def score(self, tokens: Tensor) -> Tensor:
        return torch.where(tokens[:, 0] == tokens[:, -1], 1.0, 0.3).double()


def test_a_short_run_with_the_transformer_reaches_a_low_regret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "ends", Ends)
    experiment = build(
        resolve_config(
            [
                {
                    "task": "ends",
                    "model": {"body": "transformer", "width": 16, "num_layers": 1, "heads": 2},
                    "dynamics": {"kind": "known"},
                    "optimiser": {"batch_size": 128, "updates": 12},
                    "plan": {"rows_per_level": 81},
                    "budget": {"trajectories": 2048},
                }
            ]
        )
    )
    assert experiment.truth.evaluate(experiment.policy)["regret"] > 0.2
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    assert experiment.truth.evaluate(experiment.policy)["regret"] < 0.02
