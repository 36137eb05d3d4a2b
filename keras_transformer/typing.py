"""Names for annotations."""

from typing import Any

Tensor = Any  # of the backend
