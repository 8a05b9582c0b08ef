"""peft_peer.py: the DoRA rows in PEFT, with adapters in f32 (its default) and in the dtype of the weight; a training
step, eager and compiled."""

import math
import sys

import torch
from peft import LoraConfig, get_peft_model

from timing import answer, copies, short, weight_dtype

ADAPTER = "default"
# PEFT computes the norm in every forward pass: it has no pass with a gain that was kept.
FORWARD = ("dora forward", "dora cached", "dora recomputed")


def layers(case, autocast):
    """DoRA layers of PEFT over frozen weights."""
    dtype = weight_dtype(case["dtype"])

    def make():
        base = torch.nn.Sequential(torch.nn.Linear(case["cols"], case["rows"], bias=False, device=case["device"], dtype=dtype))
        config = LoraConfig(
            r=case["rank"], lora_alpha=case["rank"], target_modules=["0"], use_dora=True, init_lora_weights=False
        )
        return get_peft_model(base, config, autocast_adapter_dtype=autocast).base_model.model[0]

    return copies(make, case["rows"] * case["cols"] * dtype.itemsize)


def norm_of(layer):
    """The norm as a forward pass takes it: B·A comes from the identity."""
    a, b = layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]
    eye = torch.eye(a.in_features, device=a.weight.device, dtype=a.weight.dtype)
    delta = b(a(eye)).T
    weight = layer.get_base_layer().weight.to(delta.dtype)
    return layer.lora_magnitude_vector[ADAPTER].get_weight_norm(weight, delta, layer.scaling[ADAPTER])


def runs(case, all_layers):
    """run and reset of a row."""
    name, pick = case["name"], lambda i: all_layers[i % len(all_layers)]
    if name == "dora norm":
        return lambda i: norm_of(pick(i)), None
    if name == "dora merge":
        return lambda i: pick(i).merge(), lambda i: pick(i).unmerge()
    dtype = weight_dtype(case["dtype"])
    x = torch.rand(case["tokens"], case["cols"], device=case["device"], dtype=dtype)
    if name in FORWARD:
        return lambda i: pick(i)(x), None
    x.requires_grad_()
    dy = torch.rand(case["tokens"], case["rows"], device=case["device"], dtype=dtype)
    outputs = [layer(x) for layer in all_layers]
    inputs = [[x] + [p for p in layer.parameters() if p.requires_grad] for layer in all_layers]
    if name == "dora step":
        return lambda i: torch.autograd.grad(pick(i)(x), inputs[i % len(inputs)], dy), None
    return (
        lambda i: torch.autograd.grad(
            outputs[i % len(outputs)], inputs[i % len(inputs)], dy, retain_graph=True
        ),
        None,
    )


class Network(torch.nn.Module):
    """The network of bench/rows/training-step.js."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 3)
        self.conv2 = torch.nn.Conv2d(8, 16, 3)
        self.conv3 = torch.nn.Conv2d(16, 24, 3)
        self.norm1 = torch.nn.BatchNorm2d(24)
        self.fc1 = torch.nn.Linear(24 * 22 * 22, 32)
        self.fc2 = torch.nn.Linear(32, 10)
        self.norm2 = torch.nn.BatchNorm1d(10)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.relu(conv(x))
        x = torch.relu(self.fc1(self.norm1(x).flatten(1)))
        return self.norm2(self.fc2(x))


def training_step(case):
    """A step with frozen statistics on a batch that a GPU fetches from pinned memory; ours waits for each loss, these do
    not."""
    config = LoraConfig(
        r=case["rank"],
        lora_alpha=case["rank"],
        target_modules=["conv1", "conv2", "conv3", "fc1", "fc2"],
        use_dora=True,
    )
    device = case["device"]
    image, target = torch.rand(case["tokens"], 1, 28, 28), torch.arange(case["tokens"]) * 7 % 10
    if device == "cuda":
        image, target = image.pin_memory(), target.pin_memory()
    variants = [("PEFT, eager", False)] + ([("PEFT, compiled", True)] if case["compiles"] else [])
    for peer, compiles in variants:
        model = get_peft_model(Network().to(device), config).eval()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
        forward = torch.compile(model) if compiles else model

        def run(i, forward=forward, optimizer=optimizer):
            x, y = image.to(device, non_blocking=True), target.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        yield peer, run, None, near_guess


def near_guess(loss):
    """Ten classes and small scores: the loss of a guess is log 10."""
    if not abs(loss.item() - math.log(10)) < 0.7:
        raise AssertionError(f"the loss {loss.item()} should be near log 10")


def measure(case):
    if case["name"] == "training step":
        yield from training_step(case)
        return
    if not case["name"].startswith("dora "):
        return
    dtype = weight_dtype(case["dtype"])
    variants = [("PEFT, f32 adapters", True)]
    if dtype != torch.float32:
        variants.append((f"PEFT, {short(dtype)} adapters", False))
    for peer, autocast in variants:
        with torch.set_grad_enabled(case["name"] in ("dora backward", "dora step")):
            run, reset = runs(case, layers(case, autocast))
            yield peer, run, reset


if __name__ == "__main__":
    answer(sys.stdin.read(), measure)
