"""TrainerCallback in transformers' Trainer, on a tiny model."""

import os
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate, which Trainer needs, is not installed")

import torch_ranks  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch._dynamo  # noqa: F401: once, not in every rank
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from kpd.gradient.torch import TrainerCallback  # noqa: E402


def data_set():
    g = torch.Generator().manual_seed(3)
    starts = torch.randint(0, 20, (64,), generator=g)
    rows = (starts[:, None] + torch.arange(12)) % 32
    return [{"input_ids": row, "labels": row} for row in rows]


def trainer_of(folder, steps):
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    )
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, ddp_backend="gloo", max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-2,
        logging_steps=1, save_steps=6, report_to=[], disable_tqdm=True, dataloader_pin_memory=False, seed=1,
    )  # fmt: skip
    return Trainer(model=model, args=arguments, train_dataset=data_set())


def train(rank, folder, steps, resume):
    # What torchrun tells its processes.
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
    trainer = trainer_of(folder, steps)
    callback = TrainerCallback(trainer, codec="eden:bits=2,scale=biased", error_feedback=True)
    trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=resume)
    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return weights, losses, callback.hook.statistics, callback.hook.state_dict()["rounds"]


def test_a_tiny_model_learns_with_equal_replicas_and_resumes(tmp_path):
    folder = str(tmp_path)
    first = torch_ranks.run(2, train, folder, 12, False)
    assert torch.equal(first[0][0], first[1][0])
    losses = first[0][1]
    assert len(losses) == 12 and losses[-1] < 0.7 * losses[0]
    statistics = first[0][2]
    assert 2 < 8 * statistics.sent_bytes / statistics.elements < 4  # its norms travel as float32, and headers count
    assert {"kpd_gradient_0.pt", "kpd_gradient_1.pt"} <= set(os.listdir(tmp_path / "checkpoint-6"))

    resumed = torch_ranks.run(2, train, folder, 8, str(tmp_path / "checkpoint-6"))
    assert torch.equal(resumed[0][0], resumed[1][0])
    assert set(resumed[0][3].values()) == {8}  # six rounds from the checkpoint and two of its own


def test_a_single_process_is_warned(tmp_path):
    def rank_main(rank):
        trainer = trainer_of(str(tmp_path), 1)
        callback = TrainerCallback(trainer)
        with pytest.warns(UserWarning, match="nothing"):
            callback.on_train_begin(trainer.args, trainer.state, trainer.control)
        return callback.hook is None

    os.environ.pop("RANK", None)
    assert torch_ranks.run(1, rank_main) == [True]
