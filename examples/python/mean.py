"""A federated round in one process: clients that send their updates at one bit a number, a server that refuses what is wrong.

Run it after `pip install .`: python examples/python/mean.py
"""

import numpy as np

from kpd import gradient

CLIENTS, ROUND = 20, 1

rng = np.random.default_rng(1)
common = {"layer.weight": rng.standard_normal((256, 512)), "layer.bias": rng.standard_normal(256)}
updates = [
    {name: (x + rng.standard_normal(x.shape)).astype(np.float32) for name, x in common.items()} for _ in range(CLIENTS)
]
true = {name: np.mean([u[name] for u in updates], axis=0) for name in common}

manifest = gradient.Manifest.from_state_dict(updates[0])
secret = gradient.new_secret()
server = gradient.Aggregator(manifest, secret, codec="eden:bits=1")
server.begin_round(run=1, round=ROUND)
for client, update in enumerate(updates):
    encoder = gradient.Encoder(manifest, "eden:bits=1", secret)
    message = encoder.encode(update, run=1, round=ROUND, client=client)
    if client == 7:
        message = message[:-100]  # a connection that broke
    verdict = server.add(client, message)
    if not verdict:
        print(f"client {client} is left out: {verdict.reason}")

mean = dict(zip(manifest.names, server.finish_round() or []))
error = sum(np.sum((mean[n] - true[n]) ** 2) for n in true) / sum(np.sum(true[n] ** 2) for n in true)
report = server.report
bits = 8 * report.bytes / CLIENTS / manifest.elements
print(f"{report.accepted} of {CLIENTS} clients, {bits:.2f} bits a number, squared error of the mean {error:.3f}")
