"""A training step of trajectory balance from gfnx's own parts, without metrics and logging, in one compiled loop."""

from typing import Any

import equinox as eqx
import gfnx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.peers.reward import require_same
from benchmarks.peers.settings import (
    BETA,
    DIMENSIONS,
    EXPLORATION_STEPS,
    LEARNING_RATE,
    LENGTH,
    LOG_Z_LEARNING_RATE,
    NUM_BITS,
    SHAPES,
    SIDE,
    WIDTH,
    WORD_BITS,
)


class Network(eqx.Module):
    """The policy network that gfnx trains: an MLP on one-hot letters or coordinates, then one linear map to all heads.

    Attributes:
        letters: of the alphabet; 0 where an observation is one-hot already, as on a grid.
    """

    body: eqx.nn.MLP
    heads: eqx.nn.Linear
    num_forward: int = eqx.field(static=True)
    letters: int = eqx.field(static=True)

    def __init__(self, num_inputs: int, letters: int, num_forward: int, num_backward: int, key: jax.Array) -> None:
        body_key, head_key = jax.random.split(key)
        self.body = eqx.nn.MLP(num_inputs, WIDTH, WIDTH, depth=2, key=body_key)
        self.heads = eqx.nn.Linear(WIDTH, num_forward + 1 + num_backward, key=head_key)
        self.num_forward, self.letters = num_forward, letters

    def __call__(self, observation: jax.Array) -> dict[str, jax.Array]:
        if self.letters:
            observation = jax.nn.one_hot(observation[1:], self.letters + 1).reshape(-1)
        output = self.heads(self.body(observation))
        forward, flow, backward = jnp.split(output, [self.num_forward, self.num_forward + 1])
        return {"forward_logits": forward, "log_flow": flow[0], "backward_logits": backward}


class Bits(gfnx.environment.sequence.FixedAutoregressiveSequenceEnvironment):
    """Words of bits from left to right: gfnx's own bit sequences are filled in any order, which is another task."""

    name = "bits"

    def __init__(self, reward_module: Any) -> None:
        length, letters = SHAPES["bits"]
        special = {"pad_token": letters, "bos_token": letters + 1, "eos_token": letters + 2}
        super().__init__(reward_module, max_length=length, nchar=letters, ntoken=letters + 3, **special)


def environment(ground: str, told: np.ndarray) -> tuple[Any, Any]:
    """A ground as gfnx knows it, with its parameters; the reward is its own, or refused where it is not ours.

    Args:
        told: log R of every design, or the modes of bit sequences.
    """
    if ground == "bits":
        env: Any = Bits(gfnx.BitseqRewardModule(NUM_BITS, WORD_BITS, reward_exponent=BETA))
        modes = jnp.asarray(told.reshape(-1, NUM_BITS) > 0.5)
        return env, env.init(jax.random.PRNGKey(0)).replace(reward_params={"mode_set": modes})
    if ground == "hypergrid":
        env = gfnx.HypergridEnvironment(gfnx.EasyHypergridRewardModule(), dim=DIMENSIONS, side=SIDE)
        params = env.init(jax.random.PRNGKey(0))
        theirs = env.reward_module.log_reward(env.get_all_states(params), params)
    else:
        env = gfnx.TFBind8Environment(gfnx.TFBind8RewardModule())
        params = env.init(jax.random.PRNGKey(0))
        theirs = jnp.log(params.reward_params["rewards"])
    require_same(told, np.asarray(theirs))
    return env, params


class Training:
    """The state of a run, taken forward by blocks of iterations."""

    length = LENGTH

    def __init__(self, batch: int, seed: int, ground: str, told: np.ndarray) -> None:
        self.batch, self.step = batch, 0
        self._env, self._env_params = environment(ground, told)
        key, init_key = jax.random.split(jax.random.PRNGKey(seed))
        length, letters = SHAPES.get(ground, (DIMENSIONS * SIDE, 0))
        num_actions = (self._env.action_space.n, self._env.backward_action_space.n)
        network = Network(length * (letters + 1), letters, *num_actions, init_key)
        weights, self._static = eqx.partition(network, eqx.is_array)
        params = {"network": weights, "log_z": jnp.zeros(())}
        self._optimiser = optax.multi_transform(
            {"network": optax.adam(LEARNING_RATE), "log_z": optax.adam(LOG_Z_LEARNING_RATE)},
            {"network": jax.tree.map(lambda _: "network", weights), "log_z": "log_z"},
        )
        self._epsilon = optax.linear_schedule(1.0, 0.0, EXPLORATION_STEPS)
        self._state = (key, params, self._optimiser.init(params))
        self._run: Any = None
        self._logits = jax.jit(lambda weights, rows: jax.vmap(eqx.combine(weights, self._static))(rows))

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self._state[1]))

    def compile(self) -> None:
        """Compile the loop; nothing is trained."""

        def run(state: Any, start: int, count: int) -> Any:
            return jax.lax.fori_loop(start, start + count, self._iteration, state)

        self._run = jax.jit(run, donate_argnums=0).lower(self._state, 0, 0).compile()

    def advance(self, count: int) -> None:
        """Train for so many iterations and wait for them."""
        self._state = jax.block_until_ready(self._run(self._state, self.step, count))
        self.step += count

    def logits(self, tokens: np.ndarray) -> jax.Array:
        """Forward logits at whole prefixes; [rows, time] → [rows, K]."""
        rows = np.full((len(tokens), LENGTH + 1), self._env.pad_token, dtype=np.int32)
        rows[:, 0] = self._env.bos_token
        rows[:, 1 : 1 + tokens.shape[1]] = tokens
        return self._logits(self._state[1]["network"], rows)["forward_logits"]

    def _iteration(self, index: jax.Array, state: Any) -> Any:
        key, params, moments = state
        key, rollout_key = jax.random.split(key)
        trajectories, _ = gfnx.utils.forward_rollout(
            rng_key=rollout_key,
            num_envs=self.batch,
            policy_fn=lambda *given: self._explore(self._epsilon(index), *given),
            policy_params=params["network"],
            env=self._env,
            env_params=self._env_params,
        )
        gradient = jax.grad(self._loss)(params, trajectories)
        updates, moments = self._optimiser.update(gradient, moments, params)
        return key, optax.apply_updates(params, updates), moments

    def _explore(self, epsilon: jax.Array, key: jax.Array, observations: jax.Array, weights: Any) -> Any:
        """Logits of the policy, or flat ones in a share ε of the rows."""
        heads = jax.vmap(eqx.combine(weights, self._static))(observations)
        flat = jax.random.bernoulli(key, epsilon, (self.batch,))
        heads["forward_logits"] = jnp.where(flat[:, None], 0.0, heads["forward_logits"])
        return heads["forward_logits"], heads

    def _loss(self, params: Any, trajectories: Any) -> jax.Array:
        """Mean of (log Z + Σ log π − Σ log π_B − log R)²."""
        heads = jax.vmap(jax.vmap(eqx.combine(params["network"], self._static)))(trajectories.obs)
        env, env_params, padded = self._env, self._env_params, trajectories.pad
        invalid = jax.vmap(env.get_invalid_mask, in_axes=(1, None), out_axes=1)(trajectories.state, env_params)
        log_forward = _chosen(heads["forward_logits"], invalid, trajectories.action)
        before = jax.tree.map(lambda column: column[:, :-1], trajectories.state)
        after = jax.tree.map(lambda column: column[:, 1:], trajectories.state)
        back = jax.vmap(env.get_backward_action, in_axes=(1, 1, 1, None), out_axes=1)(
            before, trajectories.action[:, :-1], after, env_params
        )
        invalid_back = jax.vmap(env.get_invalid_backward_mask, in_axes=(1, None), out_axes=1)(after, env_params)
        log_backward = _chosen(heads["backward_logits"][:, 1:], invalid_back, back)
        delivered = jnp.where(padded[:, :-1], 0.0, log_backward + trajectories.log_gfn_reward[:, :-1]).sum(axis=1)
        residual = params["log_z"] + jnp.where(padded, 0.0, log_forward).sum(axis=1) - delivered
        return (residual**2).mean()


def _chosen(logits: jax.Array, invalid: jax.Array, actions: jax.Array) -> jax.Array:
    """log-probability of the action that was taken; [batch, time, K], same, [batch, time] → [batch, time]."""
    log_probs = jax.nn.log_softmax(gfnx.utils.mask_logits(logits, invalid))
    return jnp.take_along_axis(log_probs, actions[..., None], axis=-1).squeeze(-1)
