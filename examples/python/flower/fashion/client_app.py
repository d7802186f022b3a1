"""The client: trains the model that it gets on its own images."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import kpd.flower
from fashion.task import Net, accuracy, read_partition, train

app = ClientApp(mods=[kpd.flower.mod()])


def load(message, context):
    config = context.run_config
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    partition = context.node_config["partition-id"] % config["partitions"]
    return net, config, partition, read_partition(partition, config["partitions"], config["images-per-client"])


@app.train()
def train_locally(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    net, config, partition, (images, labels) = load(message, context)
    seed = 1000 * config["seed"] + 100 * message.content["config"]["server-round"] + partition
    loss = train(net, images, labels, config["local-epochs"], config["learning-rate"], config["batch-size"], seed)
    metrics = MetricRecord({"num-examples": len(images), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_locally(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    net, _, _, (images, labels) = load(message, context)
    metrics = MetricRecord({"num-examples": len(images), "accuracy": accuracy(net, images, labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
