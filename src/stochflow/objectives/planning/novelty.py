"""How strongly the behaviour prefers what was not paid for."""

MAX_REPEATS = 8.0


def novelty_bonus(bonus: float, num_sampled: int, num_paid: int) -> float:
    """Exploration bonus in nats: the configured one times the trajectories per distinct design, at most eight.

    While nearly every trajectory brings a design that is new, it is the configured one. Where the same designs come
    again and again, a few have been left out because little is expected of them; a fixed bonus may never reach those.

    >>> novelty_bonus(3.0, num_sampled=1000, num_paid=1000)
    3.0
    >>> novelty_bonus(3.0, num_sampled=2000, num_paid=500)
    12.0
    """
    return bonus * min(max(num_sampled / max(num_paid, 1), 1.0), MAX_REPEATS)
