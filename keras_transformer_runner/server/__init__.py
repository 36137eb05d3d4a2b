"""A small HTTP server on `Runner`, for one machine. Its interface is the command, and HTTP.

Needs the extra `serve`; docs/serve.md says what it answers.
"""
