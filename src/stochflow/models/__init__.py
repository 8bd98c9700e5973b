"""Networks: the flow network with its heads, what reads a prefix, the context encoder, and P̂.

`FlowNetwork` is the policy with its backward policy and flows; `dynamics` holds models of the world. Gradients that
are written by hand for speed live in `engine` alone. Imports what stands before it: `core`, `config`, `environments`,
`truth`.
"""
