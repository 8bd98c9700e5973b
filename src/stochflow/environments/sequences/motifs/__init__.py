"""Promoters with binding sites: motif matrices, the words that count as sites, and the task that scores them."""

from stochflow.environments.sequences.motifs.matrices import Motif, motifs_of, read_motifs, shipped_motifs
from stochflow.environments.sequences.motifs.task import MotifTask, motif_task

__all__ = ["Motif", "MotifTask", "motif_task", "motifs_of", "read_motifs", "shipped_motifs"]
