"""The folder of a trained model, a preset: what every run folder is too. Needs no Keras."""
