"""The `keras-transformer` command. Keras is loaded when a command needs it, after all checks."""
