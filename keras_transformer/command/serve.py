"""The command `serve`, which is `keras-transformer-serve`: it needs no TensorFlow."""

from keras_transformer_runner.server.command import ABOUT, add_arguments, serve


def add_serve(add_command):
    """Adds the command `serve`.

    Args:
        add_command: Function of a name, a text and `run`, which gives the parser of a new command.
    """
    add_arguments(add_command("serve", ABOUT, run=serve))
