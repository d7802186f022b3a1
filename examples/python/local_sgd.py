"""Local SGD as DiLoCo does it: every rank trains alone for 30 steps of AdamW, then the ranks average how far they came and an outer
Nesterov step moves all of them (Douillard et al., 2023).

    torchrun --nproc-per-node 2 examples/python/local_sgd.py --codec eden:bits=1

It prints the bytes of a round beside those of float32 and of SparseLoCo's layout (Sarfi et al., 2025): of every 4096 numbers the 64
largest, each with 2 bits and an index of 12, are 7/32 of a bit a number.
"""

import argparse
import copy

import torch
import torch.distributed as dist

from kpd.gradient.torch import Averager

LOCAL_STEPS = 30


def train_alone(net: torch.nn.Module, teacher: torch.nn.Module, optimizer: torch.optim.Optimizer, data: torch.Generator) -> float:
    loss = torch.zeros(())
    for _ in range(LOCAL_STEPS):
        x = torch.randn(64, 64, generator=data)
        loss = torch.nn.functional.cross_entropy(net(x), teacher(x).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="eden:bits=1")
    parser.add_argument("--error-feedback", action="store_true", help="for codecs with scale=biased")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10))
    teacher = torch.nn.Linear(64, 10)
    shared = copy.deepcopy(net)  # the same on all ranks, after every round
    inner = torch.optim.AdamW(net.parameters(), lr=2e-3)
    outer = torch.optim.SGD(shared.parameters(), lr=0.7, momentum=0.6, nesterov=True)
    averager = Averager(codec=args.codec, error_feedback=args.error_feedback)
    numbers = sum(p.numel() for p in net.parameters())

    data = torch.Generator().manual_seed(100 + rank)
    for round_ in range(args.rounds):
        loss = train_alone(net, teacher, inner, data)
        # The outer gradient: where all began, less where this rank is now.
        way = {name: p.detach() - net.get_parameter(name).detach() for name, p in shared.named_parameters()}
        averager.average(way)
        for name, p in shared.named_parameters():
            p.grad = way[name]
        outer.step()
        net.load_state_dict(shared.state_dict())
        if rank == 0:
            sent = averager.statistics.sent_bytes / (round_ + 1) / (size - 1)
            print(
                f"round {round_ + 1}: loss {loss:.3f}; a message has {sent:.0f} bytes, float32 {4 * numbers}, SparseLoCo's layout "
                f"{numbers * 7 / 32 / 8:.0f}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
