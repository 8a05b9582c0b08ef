"""peft_peer.py: the DoRA rows in PEFT, with adapters in f32 (its default) and in the dtype of the weight."""

import sys

import torch
from peft import LoraConfig, get_peft_model

from timing import answer, copies, short, weight_dtype

DEVICE = "cuda"
ADAPTER = "default"


def layers(case, autocast):
    """DoRA layers of PEFT over frozen weights."""
    dtype = weight_dtype(case["dtype"])

    def make():
        base = torch.nn.Sequential(torch.nn.Linear(case["cols"], case["rows"], bias=False, device=DEVICE, dtype=dtype))
        config = LoraConfig(
            r=case["rank"], lora_alpha=case["rank"], target_modules=["0"], use_dora=True, init_lora_weights=False
        )
        return get_peft_model(base, config, autocast_adapter_dtype=autocast).base_model.model[0]

    return copies(make, case["rows"] * case["cols"] * dtype.itemsize)


def norm_of(layer):
    """The norm as a forward pass takes it: B·A comes from the identity."""
    a, b = layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]
    eye = torch.eye(a.in_features, device=DEVICE, dtype=a.weight.dtype)
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
    x = torch.rand(case["tokens"], case["cols"], device=DEVICE, dtype=dtype)
    if name == "dora forward":
        return lambda i: pick(i)(x), None
    x.requires_grad_()
    dy = torch.rand(case["tokens"], case["rows"], device=DEVICE, dtype=dtype)
    outputs = [layer(x) for layer in all_layers]
    inputs = [[x] + [p for p in layer.parameters() if p.requires_grad] for layer in all_layers]
    return (
        lambda i: torch.autograd.grad(
            outputs[i % len(outputs)], inputs[i % len(inputs)], dy, retain_graph=True
        ),
        None,
    )


def measure(case):
    if not case["name"].startswith("dora "):
        return
    dtype = weight_dtype(case["dtype"])
    variants = [("PEFT, f32 adapters", True)]
    if dtype != torch.float32:
        variants.append((f"PEFT, {short(dtype)} adapters", False))
    for peer, autocast in variants:
        with torch.set_grad_enabled(case["name"] == "dora backward"):
            run, reset = runs(case, layers(case, autocast))
            yield peer, run, reset


if __name__ == "__main__":
    answer(sys.stdin.read(), measure)
