"""Methods outside GFlowNets that run in the same loop: soft Q-learning, SAC, PPO, chains, populations, k-mers, random.

Each is an `Objective` like the others, so that comparisons are fair.
"""
