"""The LiteRT file that devices run, in six modes, and how it compares with Python."""
