"""TPU chips: what their makers say of one, and the topologies that libtpu compiles for."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of TPU.

    Attributes:
        memory: Bytes of HBM.
        bandwidth: Bytes of HBM a second.
        flops: bfloat16 operations a second.
        topologies: By number of chips, the smallest topology that has them.
    """

    memory: float
    bandwidth: float
    flops: float
    topologies: dict


# cloud.google.com/tpu/docs/v5e, /v5p and /v6e, "System architecture". One chip is the first of
# four: libtpu refuses a topology of one.
CHIPS = {
    "v5e": Chip(16e9, 819e9, 197e12, {1: "v5e:2x2", 4: "v5e:2x2", 8: "v5e:2x4"}),
    "v5p": Chip(95e9, 2765e9, 459e12, {1: "v5p:2x2x1", 4: "v5p:2x2x1", 8: "v5p:2x2x2"}),
    "v6e": Chip(32e9, 1640e9, 918e12, {1: "v6e:2x2", 4: "v6e:2x2", 8: "v6e:2x4"}),
}
