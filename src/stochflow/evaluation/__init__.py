"""How well a sampler does: exact figures where there is a truth, metrics of drawn designs everywhere.

`summary` holds what every run reports, `elbo` the one figure of fit that needs no enumeration, `design_metrics` modes,
diversity and novelty, `schedule` how often a run is evaluated while it trains. Imports what stands before it, up to
`objectives`.
"""
