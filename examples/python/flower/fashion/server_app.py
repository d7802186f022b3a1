"""The server: averages what the clients send and tests the model after each round."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import kpd.flower
from fashion.task import Net, accuracy, read

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.set_num_threads(1)
    config = context.run_config
    torch.manual_seed(config["seed"])
    images, labels = (tensor[: config["test-images"]] for tensor in read("t10k"))

    def test(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        found = accuracy(net, images, labels)
        print(f"round {server_round}: accuracy {found:.4f}", flush=True)
        return MetricRecord({"accuracy": found})

    strategy = FedAvg(fraction_train=config["clients-per-round"], fraction_evaluate=0.0)
    strategy.start(
        grid=kpd.flower.Grid(grid, config["codec"], max_weight=60_000),
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=config["rounds"],
        timeout=600,
        evaluate_fn=test,
    )
