"""Channel over letters, stop, gap and doubles from a channel over letters."""

import torch

from stochflow.environments.channels import Channel
from stochflow.environments.sequences.variable_length.rules import LengthRules


class EditChannel(Channel):
    """A letter is deleted with probability δ, doubled with d, and substituted as before; the stop is noiseless.

    Gap and doubles are outcomes that cannot be intended; their rows only make the matrix square.
    """

    def __init__(self, letters: Channel, rules: LengthRules) -> None:
        num, first = rules.num_letters, rules.first_double
        matrices = torch.eye(rules.num_tokens, dtype=torch.float64).repeat(len(letters.matrices), 1, 1)
        matrices[:, :num, :num] = (1.0 - rules.deletion - rules.duplication) * letters.matrices
        if rules.deletion:
            matrices[:, :num, rules.stop + 1] = rules.deletion
        if rules.duplication:
            matrices[:, :num, first:] = rules.duplication * letters.matrices
        rates = {"deletion": rules.deletion, "duplication": rules.duplication}
        added = "".join(f"+{name}:{rate:g}" for name, rate in rates.items() if rate)
        super().__init__(matrices, letters.name + added)
        self.deletion, self.duplication = rules.deletion, rules.duplication
        self._noise = f"{letters.noise}{added}" if added else letters.noise

    @property
    def noise(self) -> float | str:
        """Noise of the letters, with the rates of the edits appended."""
        return self._noise
