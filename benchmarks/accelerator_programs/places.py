"""Where the arrays of a training step lie on chips that are not there."""

import contextlib

import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_transformer.training import layout_map

BATCH, MODEL = "batch", "model"


class SharedRows:
    """Rows are shared by all chips, and each has all weights: `DataParallel`."""

    def __init__(self, model, devices):
        self.mesh = Mesh(np.array(devices), (BATCH,))
        self.rows = NamedSharding(self.mesh, PartitionSpec(BATCH))

    def of(self, variable):
        return NamedSharding(self.mesh, PartitionSpec())

    def scope(self):
        return contextlib.nullcontext()


class SplitWeights(SharedRows):
    """Two chips have half of the heads, feed-forward units and vocabulary each: `ModelParallel`."""

    def __init__(self, model, devices):
        self.mesh = Mesh(np.array(devices).reshape(-1, 2), (BATCH, MODEL))
        self.rows = NamedSharding(self.mesh, PartitionSpec(BATCH))
        self._layouts = layout_map(model.config, _DeviceMesh(self.mesh))
        # A slot of the optimizer lies as its variable, whose path is in its name.
        self._paths = {one.path.replace("/", "_"): one.path for one in model.trainable_variables}

    def of(self, variable):
        owner = variable.path.rpartition("/")[2].removesuffix("_momentum").removesuffix("_velocity")
        layout = self._layouts[self._paths.get(owner, variable.path)]
        return NamedSharding(self.mesh, PartitionSpec(*(layout.axes if layout else ())))

    def scope(self):
        return keras.distribution.ModelParallel(
            layout_map=self._layouts, batch_dim_name=BATCH
        ).scope()


class _DeviceMesh(keras.distribution.DeviceMesh):
    """Keras' mesh of devices that JAX cannot run on."""

    def __init__(self, mesh):
        super().__init__(
            mesh.devices.shape, mesh.axis_names, [str(one) for one in mesh.devices.flat]
        )
        self._of_jax = mesh

    @property
    def backend_mesh(self):
        return self._of_jax
