"""Data-parallel training whose gradients travel at four bits a number.

    torchrun --nproc-per-node 2 examples/python/ddp.py --codec eden:bits=4

The lines about kpd are two: the import and hook = ddp_hook(...).register(model).
"""

import argparse

import torch
import torch.distributed as dist

from kpd.gradient.torch import ddp_hook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codec", default="eden:bits=4")
    parser.add_argument("--pattern", default="allgather", help="allgather, or sra from four ranks on")
    parser.add_argument("--error-feedback", action="store_true", help="for codecs with scale=biased")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10))
    teacher = torch.nn.Linear(64, 10)
    model = torch.nn.parallel.DistributedDataParallel(net)
    hook = ddp_hook(args.codec, args.pattern, args.error_feedback).register(model)

    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = torch.Generator().manual_seed(100 + rank)  # every rank has data of its own
    for step in range(args.steps):
        x = torch.randn(64, 64, generator=data)
        labels = teacher(x).argmax(1)
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % 20 == 0:
            sent = hook.statistics
            bits = 8 * sent.sent_bytes / sent.elements
            print(f"step {step + 1}: loss {loss.item():.3f}, {sent.sent_bytes / 1e6:.2f} MB sent, {bits:.2f} bits a number")
    hook.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
