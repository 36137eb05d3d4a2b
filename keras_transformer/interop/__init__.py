"""Weights to and from other projects, one module each."""
