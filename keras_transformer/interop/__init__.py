"""Weights from other projects."""
