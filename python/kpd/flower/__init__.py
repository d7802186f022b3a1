"""Compressed updates for Flower (flwr >= 1.22): clients send the difference to the model that they got, at a few bits a number.

Two lines turn an app into a compressed one. In the client app ``mod`` comes first, so that clipping and noise of other mods
have been applied to what it compresses; in the server app ``Grid`` wraps Flower's, and every strategy runs as before::

    app = ClientApp(mods=[kpd.flower.mod()])
    strategy.start(grid=kpd.flower.Grid(grid, "eden:bits=1", max_weight=60_000), ...)

``KpdFedAvg`` is FedAvg whose server adds each update to one sum when it comes, in memory that does not grow with the clients.
Models travel to the clients as they are. Guide: docs/guide/flower.md.
"""

from __future__ import annotations

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as error:
    raise ImportError(f"kpd.flower needs Flower: pip install 'flwr>=1.22' ({error})", name=error.name) from error

from kpd.flower._fedavg import KpdFedAvg
from kpd.flower._grid import Grid, Round
from kpd.flower._mod import mod

__all__ = ["Grid", "KpdFedAvg", "Round", "mod"]
