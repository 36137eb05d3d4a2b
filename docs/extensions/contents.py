"""The table of contents is the list of links of `docs/index.md`, under its headings.

So the page is plain Markdown, which a Git host shows, and no page is listed twice. A page that it
does not list is a warning of Sphinx's, and so an error.
"""

import re
from pathlib import Path

ENTRY = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<path>[^)#:]+)\.md\)")
HEADING = re.compile(r"^## (?P<title>.+)$")


def with_toctrees(app, page, source):
    """Appends a hidden toctree for each heading that has entries."""
    if page != app.config.root_doc:
        return
    for caption, found in entries(source[0]):
        lines = [f"{title} <{path}>" for title, path in found]
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *lines])
        source[0] += "\n```\n"


def entries(text):
    """`[(heading, [(title, path without .md)])]` of a page."""
    found = []
    for line in text.splitlines():
        if heading := HEADING.match(line):
            found.append((heading["title"], []))
        elif (entry := ENTRY.match(line)) and found:
            found[-1][1].append((entry["title"], entry["path"]))
    return [(heading, listed) for heading, listed in found if listed]


def write_front_page(app, exception):
    """The site's root leads to the front page, which lies in `docs/`."""
    if exception is None and app.builder.format == "html":
        target = app.builder.get_target_uri(app.config.root_doc)
        page = f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app):
    app.connect("source-read", with_toctrees)
    app.connect("build-finished", write_front_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
