"""Reinforcement learning and Markov chains in the same loop: same world, same budget, same judgement."""
