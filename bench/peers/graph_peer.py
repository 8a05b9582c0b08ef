"""graph_peer.py: models that bench/exported-graph.js wrote, in PyTorch: eager and, where asked for, compiled."""

import sys

import torch

from onnx_graph import load_graph, load_tensors
from timing import answer


def near(outputs, expected, tolerance):
    """Raises unless each output as a whole is as near as ours has to be: ‖a − b‖ <= tolerance · ‖b‖."""
    for actual, (name, values) in zip(outputs, expected.items()):
        a, b = actual.detach().double().cpu(), values.double()
        error = ((a - b).norm() / b.norm()).item() if a.shape == b.shape else float("nan")
        if not error <= tolerance:
            raise AssertionError(f"output {name}: relative error {error}")


def variants(device, compiles):
    """Names, and options of torch.compile."""
    yield "PyTorch, eager", None
    if compiles:
        yield "PyTorch, compiled", {}
    if compiles and device == "cuda":
        yield "PyTorch, compiled, CUDA graph", {"mode": "reduce-overhead"}


def measure(case):
    """Products are of full f32 where ours are; inputs stay on the device."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    folder, device = case["folder"], case["device"]
    dtype = torch.bfloat16 if case["dtype"] == "bf16" else None
    module, inputs, outputs = load_graph(folder, dtype)
    module = module.to(device)
    feeds = load_tensors(folder, "feeds", dtype)
    feeds = [feeds[name].to(device) for name in inputs]
    expected = load_tensors(folder, "expected")
    expected = {name: expected[name] for name in outputs}
    for peer, options in variants(device, case["compiles"]):
        run = module if options is None else torch.compile(module, fullgraph=True, **options)
        with torch.no_grad():
            yield peer, lambda i: run(*feeds), None, lambda made: near(made, expected, case["tolerance"])


if __name__ == "__main__":
    answer(sys.stdin.read(), measure)
