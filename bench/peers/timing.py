"""timing.py: how every row of a peer is timed, and how rows travel: JSON on stdin, JSON on stdout."""

import json
import sys

import torch

COLD_BYTES = 192 << 20  # operands rotate over more than an L2 cache holds
SAMPLES = 25
BATCH_MS = 20.0
DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8_e4m3": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
}


def weight_dtype(name):
    """What PyTorch multiplies with: formats that it has no plain product for are stood in for by bf16."""
    return DTYPES[name] if name in ("f32", "f16", "bf16") else torch.bfloat16


def short(dtype):
    return str(dtype).removeprefix("torch.")


def copies(make, bytes_each):
    """As many operands as have left the cache when their turn comes again."""
    return [make() for _ in range(max(1, -(-COLD_BYTES // bytes_each)))]


def milliseconds(run, first, calls):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for i in range(first, first + calls):
        run(i)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def timed(run, reset=None):
    """Median, p10 and p90 of run(i) in a full stream; with reset, which is not timed, one call at a time."""
    for i in range(5):
        run(i)
        if reset:
            reset(i)
    torch.cuda.synchronize()
    calls = 1 if reset else max(1, min(256, int(BATCH_MS / max(1e-3, milliseconds(run, 0, 3)))))
    times = []
    for i in range(SAMPLES):
        times.append(milliseconds(run, i * calls, calls))
        if reset:
            reset(i)
    times.sort()
    return {
        "medianMs": times[SAMPLES // 2],
        "p10Ms": times[SAMPLES // 10],
        "p90Ms": times[SAMPLES * 9 // 10],
    }


def answer(text, measure):
    """Times every (peer, run, reset) that measure(case) yields for the cases in `text`, prints the rows."""
    rows = []
    for case in json.loads(text)["cases"]:
        about = {key: case[key] for key in ("name", "shape", "dtype")}
        try:
            for peer, run, reset in measure(case):
                rows.append({**about, "peer": peer, **timed(run, reset)})
        except Exception as error:  # one peer that cannot do a row must not end the others
            rows.append({**about, "peer": "PyTorch", "error": f"{type(error).__name__}: {error}"})
        torch.cuda.empty_cache()
    json.dump({"rows": rows}, sys.stdout)
