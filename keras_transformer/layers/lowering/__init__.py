"""What the machine wants of the layers: how a graph is traced, kernels laid out, caches."""
