"""The SavedModel that TF Serving runs: its graphs, its inputs, and what it says of itself."""
