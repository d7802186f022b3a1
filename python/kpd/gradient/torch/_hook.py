"""The communication hook of DistributedDataParallel."""

# No postponed annotations here: torch compares those of a hook with its own types.

import queue
import threading
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]
from torch.futures import Future  # type: ignore[import-not-found,unused-ignore]

from kpd._errors import Error
from kpd.gradient.torch._average import FLOATS, Averager, Statistics


class DdpHook:
    """Averages the gradients of DistributedDataParallel in compressed messages; ``ddp_hook`` makes one.

    Register it with the model as its state: ``ddp.register_comm_hook(ddp.module, hook)``, or ``hook.register(ddp)``, which does that.
    """

    def __init__(self, averager: Averager, group: Any) -> None:
        # What torch logs and compares of a hook.
        self.__name__ = self.__qualname__ = "kpd_ddp_hook"
        self._averager = averager
        self._group = group
        self._names: dict[int, str] = {}
        self._model: Any = None
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._worker = threading.Thread(target=self._work, name="kpd-ddp-hook", daemon=True)
        self._worker.start()

    def register(self, ddp: torch.nn.parallel.DistributedDataParallel) -> "DdpHook":
        """Registers the hook with a wrapped model; returns it."""
        ddp.register_comm_hook(ddp.module, self)
        return self

    def __call__(self, state: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """Takes the bucket and returns at once; the future has its mean, in the bucket's own memory."""
        flat = bucket.buffer()
        if flat.device.type != "cpu" or flat.dtype not in FLOATS:
            raise Error(f"ddp_hook: gradients of {flat.dtype} on {flat.device}, expected floats on the CPU")
        if self._error is not None:
            raise Error("ddp_hook: it was closed or an average of it failed; expected a new one on all ranks") from self._error
        named = [(self._name_of(state, p), p.numel()) for p in bucket.parameters()]
        future: Future[torch.Tensor] = Future()
        self._tasks.put((flat, named, future))
        return future

    @property
    def statistics(self) -> Statistics:
        return self._averager.statistics

    def state_dict(self) -> dict[str, Any]:
        """Rounds and residuals by the parameters' names, of this rank: save each rank's own. Not during a backward pass."""
        return self._averager.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes what ``state_dict`` gave, on all ranks, before the next backward pass."""
        self._averager.load_state_dict(state)

    def close(self) -> None:
        """Ends the worker and its process group. A collective call, like ``destroy_process_group``; a second one does nothing."""
        if self._worker.is_alive():
            self._tasks.put(None)
            self._worker.join()
        if self._error is None:
            self._error = Error("ddp_hook: closed")
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _name_of(self, state: Any, parameter: torch.Tensor) -> str:
        if state is not self._model or id(parameter) not in self._names:
            if not isinstance(state, torch.nn.Module):
                raise Error(f"ddp_hook: {type(state).__name__} as state, expected the model: ddp.register_comm_hook(ddp.module, hook)")
            model = state.module if isinstance(state, torch.nn.parallel.DistributedDataParallel) else state
            self._names = {id(p): name for name, p in model.named_parameters()}
            self._model = state
        name = self._names.get(id(parameter))
        if name is None:
            raise Error(f"ddp_hook: a parameter of shape {tuple(parameter.shape)} is not in the state, expected the model that DDP wraps")
        return name

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            flat, named, future = task
            if self._error is None:
                try:
                    self._averager.average_flat(flat, named)
                    future.set_result(flat)
                    continue
                except Exception as error:  # noqa: BLE001: whatever it is, backward() must not wait for it
                    self._error = error
                    self._abort()
            future.set_exception(self._error)

    def _abort(self) -> None:
        """Ranks that wait for this one learn that it will not come."""
        group = self._group
        abort = getattr(group, "abort", None)
        if abort is not None:
            try:
                abort()
            except RuntimeError:
                pass


def ddp_hook(
    codec: Any = "eden:bits=4",
    pattern: str = "allgather",
    error_feedback: bool = False,
    *,
    second: Any = None,
    process_group: dist.ProcessGroup | None = None,
    threads: int = 1,
) -> DdpHook:
    """A hook for ``DistributedDataParallel.register_comm_hook``: gradients travel at a few bits a number.

    A collective call: all ranks of ``process_group`` (None: all) make it with the same arguments, and it opens a group of its own
    for the messages. ``codec``, ``pattern``, ``second``, ``error_feedback`` and ``threads`` are those of ``Averager``; names in a
    codec's patterns are those of the parameters.

    One worker thread averages bucket after bucket in the order in which DDP hands them over, while backward goes on. Gradients stay in
    DDP's buckets (float32, bfloat16, float16); the mean is computed in float32. Raises kpd.Error.
    """
    if not dist.is_initialized():
        raise Error("ddp_hook: torch.distributed has no process group, expected init_process_group() before")
    ranks = None if process_group is None else dist.get_process_group_ranks(process_group)
    backend = dist.get_backend(process_group)
    if "gloo" in str(backend):
        backend = "gloo"
    # Only the members call it, so that a hook of some ranks does not wait for the others.
    group = dist.new_group(ranks, backend=backend, use_local_synchronization=ranks is not None)
    averager = Averager(group, codec, pattern, second=second, error_feedback=error_feedback, threads=threads)
    return DdpHook(averager, group)
