"""Federated training on Fashion-MNIST, with Flower, PyTorch and kpd."""
