"""torch_peer.py: the rows in PyTorch: plain products, LoRA, DoRA with a dense B·A, casts; and what the GPU can do."""

import json
import sys

import torch
import torch.nn.functional as F

from timing import DTYPES, answer, copies, short, show, timed, weight_dtype

DEVICE = "cuda"
SCALE = 1.0
torch.backends.cudnn.allow_tf32 = False


def random(*shape, dtype):
    return torch.rand(*shape, device=DEVICE, dtype=torch.float32).mul_(2).sub_(1).to(dtype)


def limits():
    """Copy bandwidth (bytes read plus written) and the fastest GEMM."""
    source = torch.empty(1 << 28, device=DEVICE, dtype=torch.float32)
    target = torch.empty_like(source)
    copy = timed(lambda i: target.copy_(source))["medianMs"]
    size = 8192
    fastest = 0.0
    for dtype in (torch.float32, torch.bfloat16):
        a, b = random(size, size, dtype=dtype), random(size, size, dtype=dtype)
        fastest = max(fastest, 2 * size**3 / timed(lambda i: a @ b)["medianMs"] / 1e6)
    return {"copyGBs": 2 * source.nbytes / copy / 1e6, "gemmGFLOPs": fastest}


def weights(case):
    dtype = weight_dtype(case["dtype"])
    make = lambda: random(case["rows"], case["cols"], dtype=dtype)
    return copies(make, case["rows"] * case["cols"] * dtype.itemsize)


def adapter(case, grad=False):
    """A, B and the magnitude, in the dtype of the weight."""
    dtype = weight_dtype(case["dtype"])
    a = random(case["rank"], case["cols"], dtype=dtype)
    b = random(case["rows"], case["rank"], dtype=dtype)
    m = torch.ones(case["rows"], device=DEVICE, dtype=dtype)
    return tuple(t.requires_grad_(grad) for t in (a, b, m))


def dense_norm(w, a, b):
    return torch.linalg.vector_norm(w + SCALE * (b @ a), dim=1)


def lora(x, w, a, b):
    return F.linear(x, w) + SCALE * F.linear(F.linear(x, a), b)


def dense_dora(x, w, a, b, m):
    return (m / dense_norm(w, a, b).detach()) * lora(x, w, a, b)


def linear(case):
    ws = weights(case)
    x = random(case["tokens"], case["cols"], dtype=ws[0].dtype)
    yield f"PyTorch {short(ws[0].dtype)}", lambda i: F.linear(x, ws[i % len(ws)]), None


def image(case):
    """Filters, an image and the window of a convolution."""
    dtype, size, kernel = weight_dtype(case["dtype"]), case["size"], case["kernel"]
    w = random(case["filters"], case["channels"] // case["groups"], kernel, kernel, dtype=dtype)
    x = random(case["batch"], case["channels"], size, size, dtype=dtype)
    return w, x, {"stride": case["stride"], "padding": (kernel - 1) // 2, "groups": case["groups"]}


def conv(case):
    w, x, window = image(case)
    bias = random(case["filters"], dtype=w.dtype)
    yield f"PyTorch {short(w.dtype)}", lambda i: F.conv2d(x, w, bias, **window), None


def conv_dx(case):
    w, x, window = image(case)
    dy = torch.ones_like(F.conv2d(x, w, **window))
    gradient = torch.nn.grad.conv2d_input
    yield f"PyTorch {short(w.dtype)}", lambda i: gradient(x.shape, w, dy, **window), None


def conv_dweight(case):
    w, x, window = image(case)
    dy = torch.ones_like(F.conv2d(x, w, **window))
    gradient = torch.nn.grad.conv2d_weight
    yield f"PyTorch {short(w.dtype)}", lambda i: gradient(x, w.shape, dy, **window), None


def heads(case, count, rows, dtype):
    return random(1, case[count], case[rows], case["depth"], dtype=dtype)


def attention(case):
    """As PyTorch chooses to form it; heads of keys are shared where they are fewer."""
    dtype = weight_dtype(case["dtype"])
    q, k, v = (heads(case, *of, dtype) for of in (("heads", "queries"), *[("kvHeads", "keys")] * 2))
    options = {"is_causal": bool(case["causal"]), "enable_gqa": case["heads"] != case["kvHeads"]}
    run = lambda i: F.scaled_dot_product_attention(q, k, v, **options)
    yield f"PyTorch {short(dtype)}", run, None


def scores(case):
    """Products of the heads of two activations [tokens, heads, width]."""
    dtype = weight_dtype(case["dtype"])
    q, k = (random(case["tokens"], case["heads"], case["width"], dtype=dtype) for _ in range(2))
    left, right = q.transpose(0, 1), k.permute(1, 2, 0)
    yield f"PyTorch {short(dtype)}", lambda i: left @ right, None


def norm(case):
    ws, (a, b, _) = weights(case), adapter(case)
    yield "dense B·A", lambda i: dense_norm(ws[i % len(ws)], a, b), None


def merge(case):
    ws, (a, b, m) = weights(case), adapter(case)

    def run(i):
        v = ws[i % len(ws)] + SCALE * (b @ a)
        return v * (m / torch.linalg.vector_norm(v, dim=1))[:, None]

    yield "dense B·A", run, None


def forward(case):
    ws, (a, b, m) = weights(case), adapter(case)
    x = random(case["tokens"], case["cols"], dtype=ws[0].dtype)
    with torch.no_grad():
        yield "LoRA", lambda i: lora(x, ws[i % len(ws)], a, b), None
        yield "dense B·A", lambda i: dense_dora(x, ws[i % len(ws)], a, b, m), None


def backward(case):
    ws, (a, b, m) = weights(case), adapter(case, grad=True)
    x = random(case["tokens"], case["cols"], dtype=ws[0].dtype).requires_grad_()
    dy = random(case["tokens"], case["rows"], dtype=ws[0].dtype)
    for peer, outputs, inputs in (
        ("LoRA", [lora(x, w, a, b) for w in ws], (x, a, b)),
        ("dense B·A", [dense_dora(x, w, a, b, m) for w in ws], (x, a, b, m)),
    ):
        run = lambda i: torch.autograd.grad(outputs[i % len(ws)], inputs, dy, retain_graph=True)
        yield peer, run, None


def step(case):
    ws, (a, b, m) = weights(case), adapter(case, grad=True)
    x = random(case["tokens"], case["cols"], dtype=ws[0].dtype).requires_grad_()
    dy = random(case["tokens"], case["rows"], dtype=ws[0].dtype)
    lora_run = lambda i: torch.autograd.grad(lora(x, ws[i % len(ws)], a, b), (x, a, b), dy)
    dora_run = lambda i: torch.autograd.grad(dense_dora(x, ws[i % len(ws)], a, b, m), (x, a, b, m), dy)
    yield "LoRA", lora_run, None
    yield "dense B·A", dora_run, None


def cast(case):
    source, target = (DTYPES[name] for name in case["dtype"].split(">"))
    make = lambda: random(case["rows"], case["cols"], dtype=source)
    xs = copies(make, case["rows"] * case["cols"] * source.itemsize)
    yield "PyTorch", lambda i: xs[i % len(xs)].to(target), None


def amax(case):
    xs = weights(case)
    yield "PyTorch", lambda i: xs[i % len(xs)].abs().amax(), None


ROWS = {
    "linear": linear,
    "conv": conv,
    "conv dx": conv_dx,
    "conv dweight": conv_dweight,
    "attention": attention,
    "matmul scores": scores,
    "dora norm": norm,
    "dora merge": merge,
    "dora forward": forward,
    "dora cached": forward,
    "dora recomputed": forward,
    "dora backward": backward,
    "dora step": step,
    "cast": cast,
    "amax": amax,
}

if __name__ == "__main__":
    text = sys.stdin.read()
    if json.loads(text).get("limits"):
        show(limits())
    else:
        answer(text, lambda case: ROWS[case["name"]](case) if case["name"] in ROWS else ())
