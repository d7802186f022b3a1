"""The network, the images and one client's training. Nothing here knows that updates are compressed."""

import functools
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

FOLDER = Path("/usr/share/datasets/fashion-mnist")  # apt-get install dataset-fashion-mnist


class Net(nn.Module):
    """Two convolutions and two linear layers: 80,202 parameters."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images):
        return self.classifier(self.features(images))


@functools.cache
def read(part):
    """Images in [-1, 1] and labels of "train" (60,000) or "t10k" (10,000)."""
    with gzip.open(FOLDER / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(FOLDER / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.from_numpy(images.astype(np.float32) / 127.5 - 1), torch.from_numpy(labels.astype(np.int64))


def read_partition(partition, partitions, limit):
    """The images of one client: every partitions-th, at most `limit`."""
    images, labels = read("train")
    return images[partition::partitions][:limit], labels[partition::partitions][:limit]


def train(net, images, labels, epochs, learning_rate, batch_size, seed):
    """SGD with momentum; returns the mean loss."""
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    losses = []
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=order).split(batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(net, images, labels):
    hits = sum((net(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
    return hits / len(images)
