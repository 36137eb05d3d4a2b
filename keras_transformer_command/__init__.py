"""Starts the `keras-transformer` command without Keras.

Importing anything of `keras_transformer` imports its `__init__`, and with it Keras, which takes
seconds. `--help` and a typo in a path need neither: where this module was imported first,
`keras_transformer` is imported without its public names.
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the command; see `keras_transformer.command.cli.main`."""
    from keras_transformer.command import cli

    return cli.main(argv)
