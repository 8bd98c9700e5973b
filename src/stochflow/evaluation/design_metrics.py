"""Metrics of a set of designs: quality, number of modes, diversity and novelty.

Designs are rows of tokens, [n, L], of one common length and any integer type. Every result is the same whatever
the order of the rows. Where lengths vary, a `padding` token fills up what follows the last letter, and edit distances
take the place of Hamming distances; a Hamming distance that is asked for by name counts the padding as a letter.
"""

import torch
from torch import Tensor

from stochflow.core.hashes import row_hashes

# entries of the largest distance block and pairs per edit-distance batch: tens of megabytes, whatever n is
_DISTANCES_PER_CHUNK = 2**22
_PAIRS_PER_CHUNK = 2**16


def mean_pairwise_hamming(tokens: Tensor) -> float:
    """Mean of d(i, j) = #{l : x_il ≠ x_jl} over the n(n − 1)/2 pairs i < j of rows, [n, L]; 0.0 for less than two.

    Counted per position without forming the pairs:  Σ_l (1 − Σ_k c_lk·(c_lk − 1) / (n·(n − 1))),  where c_lk rows
    have token k at position l.
    """
    num_rows, length = tokens.shape
    if num_rows < 2:
        return 0.0
    alphabet, codes = tokens.unique(return_inverse=True)
    slots = codes + len(alphabet) * torch.arange(length, device=tokens.device)
    counts = slots.flatten().bincount()
    num_ordered_pairs = num_rows * (num_rows - 1)
    num_agreements = int((counts * (counts - 1)).sum())
    return (length * num_ordered_pairs - num_agreements) / num_ordered_pairs


def mean_pairwise_edit(tokens: Tensor, padding: int | None = None) -> float:
    """Mean Levenshtein distance over the n(n − 1)/2 pairs i < j of rows, [n, L]; 0.0 for fewer than two rows.

    Insertions, deletions and substitutions cost one each. Time grows as n²·L².
    """
    num_rows = len(tokens)
    if num_rows < 2:
        return 0.0
    first, second = torch.triu_indices(num_rows, num_rows, offset=1, device=tokens.device)
    batches = zip(first.split(_PAIRS_PER_CHUNK), second.split(_PAIRS_PER_CHUNK), strict=True)
    total = sum(int(_edit_distances(tokens[left], tokens[right], padding).sum()) for left, right in batches)
    return total / len(first)


def num_modes(
    tokens: Tensor,
    scores: Tensor,
    score_threshold: float,
    distance_threshold: int = 2,
    padding: int | None = None,
) -> int:
    """Number of designs that score above a threshold and lie apart, chosen greedily from the best down.

    A design opens a mode when its distance to every mode so far exceeds `distance_threshold`; equal scores are taken
    in lexicographic order of their tokens. A repeated design never opens a mode and counts with the best of its scores.

    Args:
        tokens: [n, L].
        scores: [n], without NaN.
        score_threshold: only scores strictly above it count.
        distance_threshold: radius of a mode.
    """
    candidates, best_scores = _ranked(tokens, scores)
    candidates = candidates[best_scores > score_threshold]
    count = 0
    # the first candidate left is the best one outside all modes; it opens the next and takes its neighbours with it
    while len(candidates):
        distances = _distances_to_first(candidates, max(distance_threshold, 0), padding)
        candidates = candidates[distances > max(distance_threshold, 0)]
        count += 1
    return count


def top_k(tokens: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best distinct designs, best first, and their scores; [n, L], [n] → [m, L], [m].

    m is k, or the number of distinct designs if that is smaller. Equal scores are ordered by a hash of the tokens: of
    more designs than there are places a random choice shows what they have in common, while the first of the alphabet
    begin alike. A repeated design has the best of its scores.
    """
    if k < 0:
        raise ValueError(f"k is {k}; ask for zero or more designs")
    candidates, best_scores = _ranked(tokens, scores)
    shuffled = torch.from_numpy(row_hashes(candidates.cpu().numpy()).argsort()).to(candidates.device)
    order = shuffled[best_scores[shuffled].argsort(descending=True, stable=True)]
    return candidates[order[:k]], best_scores[order[:k]]


def novelty(tokens: Tensor, reference: Tensor, padding: int | None = None) -> float:
    """Mean over designs of min_r d(x, r), the distance to the nearest reference; [n, L], [m, L] → scalar.

    Zero when every design is in the reference set, and for no designs at all.
    """
    if not len(tokens):
        return 0.0
    if not len(reference):
        raise ValueError("novelty was asked against an empty reference set; give at least one reference sequence")
    distinct, counts = tokens.unique(dim=0, return_counts=True)
    rows_per_chunk = max((_DISTANCES_PER_CHUNK if padding is None else _PAIRS_PER_CHUNK) // len(reference), 1)
    total = 0
    for rows, weights in zip(distinct.split(rows_per_chunk), counts.split(rows_per_chunk), strict=True):
        # summed at once: small tensors kept from every chunk would fragment the heap between the large blocks
        total += int((_distances(rows, reference, padding).amin(dim=-1) * weights).sum())
    return total / len(tokens)


def _distances(left: Tensor, right: Tensor, padding: int | None) -> Tensor:
    """Distances of all pairs; [n, L], [m, L] → [n, m]."""
    if padding is None:
        return _hamming(left, right)
    pairs = left.repeat_interleave(len(right), dim=0), right.repeat(len(left), 1)
    return _edit_distances(*pairs, padding).view(len(left), -1)


def _distances_to_first(tokens: Tensor, limit: int, padding: int | None) -> Tensor:
    """Distance of every row to the first, exact up to `limit` and larger beyond; [n, L] → [n]."""
    if padding is None:
        return (tokens != tokens[0]).sum(dim=-1)
    return _edit_distances(tokens, tokens[:1].expand_as(tokens), padding, limit)


def unique_fraction(tokens: Tensor) -> float:
    """Number of distinct rows over the number of rows, [n, L]; 0.0 without rows."""
    return len(tokens.unique(dim=0)) / len(tokens) if len(tokens) else 0.0


def _hamming(left: Tensor, right: Tensor) -> Tensor:
    """Hamming distances of all pairs, int64; [n, L], [m, L] → [n, m]."""
    if left.shape[-1] != right.shape[-1]:
        raise ValueError(f"sequences of length {left.shape[-1]} and {right.shape[-1]} have no Hamming distance")
    # the 0-"norm" of a difference counts its non-zero entries; tokens are exact in float64
    return torch.cdist(left.double(), right.double(), p=0.0).long()


def _edit_distances(left: Tensor, right: Tensor, padding: int | None = None, limit: int | None = None) -> Tensor:
    """Levenshtein distance row by row; [pairs, L], [pairs, M] → [pairs].

    D(i, j) = min(D(i−1, j) + 1, D(i, j−1) + 1, D(i−1, j−1) + [left_i ≠ right_j]), all pairs in each cell at once.

    Args:
        padding: what stands after the last letter and does not count.
        limit: beyond it any larger number will do; then only cells near the diagonal are looked at.
    """
    num_pairs, (height, width) = len(left), (left.shape[1], right.shape[1])
    # one column of tokens per position, contiguous: each cell reads two of them
    left_columns, right_columns = left.T.contiguous(), right.T.contiguous()
    left_ends, right_ends = (_lengths(tokens, padding) for tokens in (left, right))
    above = list(torch.arange(width + 1, dtype=torch.int32, device=left.device).unsqueeze(-1).expand(-1, num_pairs))
    far = torch.full_like(above[0], height + width)
    distances = right_ends.to(torch.int32)  # right for pairs whose left row is empty
    for i in range(height):
        current = [torch.full_like(above[0], i + 1)] + width * [far]
        band = range(width) if limit is None else range(max(i - limit, 0), min(i + limit + 1, width))
        for j in band:
            substituted = above[j] + (left_columns[i] != right_columns[j])
            current[j + 1] = torch.minimum(torch.minimum(above[j + 1], current[j]) + 1, substituted)
        above = current
        ending = (left_ends == i + 1).nonzero().squeeze(-1)
        if len(ending):
            distances[ending] = torch.stack(above)[right_ends[ending], ending]
    return distances


def _lengths(tokens: Tensor, padding: int | None) -> Tensor:
    """Letters of each row, [pairs]."""
    if padding is None:
        return torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
    return (tokens != padding).sum(dim=-1)


def _ranked(tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows with their best scores, best first, equal scores in lexicographic order; [m, L], [m]."""
    if scores.shape != (len(tokens),) or scores.isnan().any():
        raise ValueError(
            f"{len(tokens)} designs came with scores of shape {tuple(scores.shape)}, "
            f"{int(scores.isnan().sum())} of them NaN; give one number per design"
        )
    distinct, rows = tokens.unique(dim=0, return_inverse=True)
    best_scores = scores.new_zeros(len(distinct)).scatter_reduce(0, rows, scores, "amax", include_self=False)
    # `unique` sorts lexicographically and the stable sort keeps that order among equals
    best_scores, order = best_scores.sort(descending=True, stable=True)
    return distinct[order], best_scores
