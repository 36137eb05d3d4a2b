"""AdamW whose decay is for kernels and embeddings, also after it has been saved."""

import keras


@keras.saving.register_keras_serializable(package="keras_transformer")
class AdamW(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` that decays kernels and embeddings only.

    Not biases, the scales of norms, or the vectors of additive attention. This is a rule about
    the names of variables, where Keras has a list of them that it does not save.

    Args:
        As of `keras.optimizers.AdamW`.
    """

    def build(self, variables):
        if not self.built:
            spared = [v for v in variables if not v.name.endswith(("kernel", "embeddings"))]
            more, names = self._excluded()
            super().exclude_from_weight_decay([*spared, *more], names)
        super().build(variables)

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Excludes more variables, as in Keras: before `build`, and not kept in a file.

        Raises:
            ValueError: if the optimizer is built.
        """
        if self.built:
            raise ValueError(
                "`exclude_from_weight_decay` must be called before the optimizer is built. "
                f"Received: var_list={var_list}, var_names={var_names} afterwards"
            )
        super().exclude_from_weight_decay(var_list, var_names)
        # In a function: variables in an attribute would become the optimizer's own.
        self._excluded = lambda: (list(var_list or ()), var_names)

    def _excluded(self):
        return [], None
