"""What every search returns."""

from typing import NamedTuple


class Hypotheses(NamedTuple):
    """N hypotheses a row, best first; samples as they are drawn."""

    ids: object  # (B, N, T) int32: the tokens, EOS if there is one, then pads
    scores: object = None  # (B, N) float32, penalised; `None` of a search that needs none
    log_probs: object = None  # (B, N, T) float32 of each token, 0 behind them; `None` likewise
