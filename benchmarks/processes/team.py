"""Several children that do the shares of one work at the same time, each on a core of its own."""

import contextlib

from processes.child import Child
from processes.orders import places


class Team:
    """As many children as the settings' `processes` says, 1 when it says nothing.

    A context manager that ends them. With several, each is told its `share`, from 0, for which
    its script takes a part of the work (see `orders.own_share`) and a core.

    Args:
        script, python, folder, settings: See `Child`.

    Attributes:
        versions: What the children said they use.

    Raises:
        Failed: if one of them cannot be started.
    """

    def __init__(self, script, python, folder, settings):
        count = settings.get("processes", 1)
        with contextlib.ExitStack() as stack:
            self._children = [
                stack.enter_context(Child(script, python, folder, settings | {"share": share}))
                for share in range(count)
            ]
            self._stack = stack.pop_all()
        self.versions = self._children[0].versions

    def ask(self, **order):
        """Sends an order to all before any answers; the answers, in the order of the shares.

        Raises:
            Failed: if one of them has ended; and so does every later call.
        """
        for child in self._children:
            child.send(**order)
        return [child.receive() for child in self._children]

    def close(self):
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def in_order(shares):
    """What the children have made of their shares of a list, as the list that it was."""
    whole = [None] * sum(map(len, shares))
    for number, share in enumerate(shares):
        for place, done in zip(places(len(whole), number, len(shares)), share, strict=True):
            whole[place] = done
    return whole
