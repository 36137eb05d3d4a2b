"""Chips: what their makers say of one, and the devices that can be compiled for without one."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of TPU or GPU.

    Attributes:
        memory: Bytes of HBM.
        bandwidth: Bytes of HBM a second.
        flops: bfloat16 operations a second.
        topologies: By number of chips, the smallest topology that has them.
        target: Of a GPU, what XLA asks about the device; `None` for a TPU.
    """

    memory: float
    bandwidth: float
    flops: float
    topologies: dict
    target: str | None = None

    @property
    def platform(self):
        return "tpu" if self.target is None else "cuda"

    @property
    def compiler(self):
        """The package that compiles for it."""
        return "libtpu" if self.target is None else "jax-cuda12-pjrt"

    def devices(self, count):
        """So many devices that can be compiled for, and not be run on."""
        from jax.experimental import topologies

        if self.target is None:
            options = {"topology_name": self.topologies[count]}
        else:
            options = {"topology": self.topologies[count], "target_config": self.target}
        described = topologies.get_topology_desc(platform=self.platform, **options)
        return described.devices[:count]


# A GPU's target: what XLA's `DeviceDescription` of such a card holds. The libraries' versions are
# those that `jax[cuda12]` installs.
_TARGET = """
gpu_device_info {{
  name: "{name}"
  cuda_compute_capability {{ major: {major} }}
  core_count: {cores}
  fpus_per_core: {fpus}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  shared_memory_per_core: {shared_memory}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {shared_memory_optin}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  driver_version: "12.8.0"
  runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
runtime_version {{ major: 12 minor: 8 }}
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{name}"
"""
_GPUS = {1: "1x1x1", 4: "1x1x4", 8: "1x1x8"}  # slices, hosts, GPUs


def _gpu(memory, bandwidth, flops, **target):
    target = _TARGET.format(memory=int(memory), bandwidth=int(bandwidth), **target)
    return Chip(memory, bandwidth, flops, _GPUS, target)


# cloud.google.com/tpu/docs/v5e, /v5p and /v6e, "System architecture". One chip is the first of
# four: libtpu refuses a topology of one. Of GPUs NVIDIA's data sheets, dense bfloat16, SXM.
CHIPS = {
    "v5e": Chip(16e9, 819e9, 197e12, {1: "v5e:2x2", 4: "v5e:2x2", 8: "v5e:2x4"}),
    "v5p": Chip(95e9, 2765e9, 459e12, {1: "v5p:2x2x1", 4: "v5p:2x2x1", 8: "v5p:2x2x2"}),
    "v6e": Chip(32e9, 1640e9, 918e12, {1: "v6e:2x2", 4: "v6e:2x2", 8: "v6e:2x4"}),
    "a100": _gpu(
        80e9, 2039e9, 312e12, name="NVIDIA A100-SXM4-80GB", major=8, cores=108, fpus=64,
        clock=1.41, cache=41943040, shared_memory=167936, shared_memory_optin=166912,
    ),
    "h100": _gpu(
        80e9, 3350e9, 989e12, name="NVIDIA H100 80GB HBM3", major=9, cores=132, fpus=128,
        clock=1.98, cache=52428800, shared_memory=233472, shared_memory_optin=232448,
    ),
}  # fmt: skip
