"""The hook in transformers' Trainer."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import transformers  # type: ignore[import-not-found,unused-ignore]

from kpd._errors import Error
from kpd.gradient.torch._hook import DdpHook, ddp_hook


class TrainerCallback(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Compresses the gradients of a transformers Trainer that trains on several ranks.

    ``trainer.add_callback(TrainerCallback(trainer, codec="eden:bits=4"))`` before ``trainer.train()``, on all ranks; the arguments
    after the trainer are those of ``ddp_hook``. It registers the hook when training begins, writes what each rank's hook knows into
    every checkpoint (``kpd_gradient_RANK.pt``) and reads it where training is resumed from one in ``output_dir``. ``hook`` is
    the DdpHook, e.g. for its ``statistics``, which every log entry has as ``kpd_sent_bytes`` and ``kpd_vnmse``.

    A single process has nothing to average: a warning. A model that is sharded (FSDP, DeepSpeed) raises kpd.Error.
    """

    def __init__(self, trainer: transformers.Trainer, codec: Any = "eden:bits=4", pattern: str = "allgather", **options: Any) -> None:
        self._trainer = trainer
        self._options = {"codec": codec, "pattern": pattern, **options}
        self._model: Any = None
        self.hook: DdpHook | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = self._trainer.model_wrapped
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            if args.world_size > 1:
                raise Error(f"TrainerCallback: the model is a {type(model).__name__}, expected DistributedDataParallel", code="unsupported")
            warnings.warn("kpd: a single process has no gradients to exchange; TrainerCallback does nothing", stacklevel=2)
            return
        if model is self._model:
            return  # a second train() of the same wrapped model: DDP takes one hook for good
        self._model = model
        self.hook = ddp_hook(**self._options).register(model)
        path = self._path(args, state)
        if state.global_step > 0 and os.path.exists(path):
            self.hook.load_state_dict(torch.load(path, weights_only=True))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.hook is None:
            return
        path = self._path(args, state)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save(self.hook.state_dict(), path + ".part")
        os.replace(path + ".part", path)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self.hook is not None and logs is not None:
            logs["kpd_sent_bytes"] = self.hook.statistics.sent_bytes
            logs["kpd_vnmse"] = self.hook.statistics.vnmse

    @staticmethod
    def _path(args: Any, state: Any) -> str:
        return os.path.join(args.output_dir, f"checkpoint-{state.global_step}", f"kpd_gradient_{args.process_index}.pt")
