"""Averages of torch's tensors between the ranks of a process group, a few bits a number.

``ddp_hook`` compresses the gradients of DistributedDataParallel, ``average_tensors`` and ``Averager`` average any tensors, e.g.
the models of local SGD, ``TrainerCallback`` brings the hook to transformers' Trainer. Guide: docs/guide/ddp.md.

Tensors are on the CPU, the process group is one of c10d's that moves them there (gloo).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpd.gradient.torch._average import Averager, Statistics, average_tensors
from kpd.gradient.torch._hook import DdpHook, ddp_hook

if TYPE_CHECKING:
    from kpd.gradient.torch._trainer import TrainerCallback

__all__ = ["Averager", "DdpHook", "Statistics", "TrainerCallback", "average_tensors", "ddp_hook"]


def __getattr__(name: str) -> Any:
    if name != "TrainerCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Here, because it imports transformers.
    from kpd.gradient.torch._trainer import TrainerCallback

    return TrainerCallback
