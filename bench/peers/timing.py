"""timing.py: how every row of a peer is timed, and how rows travel: JSON on stdin, lines of JSON on stdout."""

import json
import time
from typing import Callable, NamedTuple, Optional

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


class Peer(NamedTuple):
    """What is timed: run(i), then reset(i), which is not; check(run(0)) raises unless that is right."""

    name: str
    run: Callable
    reset: Optional[Callable] = None
    check: Optional[Callable] = None


def on_gpu(run, first, calls):
    """Milliseconds of a call in a full stream."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for i in range(first, first + calls):
        run(i)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def on_cpu(clock):
    """Milliseconds of a call by a clock of Python."""

    def milliseconds(run, first, calls):
        start = clock()
        for i in range(first, first + calls):
            run(i)
        return (clock() - start) * 1e3 / calls

    return milliseconds


def timed(run, reset=None, milliseconds=on_gpu):
    """Median, p10 and p90 of run(i), call behind call; with reset one call at a time."""
    for i in range(5):
        run(i)
        if reset:
            reset(i)
    if torch.cuda.is_available():
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


def clock_of(request):
    """How times are taken on the device of a request; on a CPU the threads it names compute."""
    if request["device"] == "cuda":
        return on_gpu
    torch.set_num_threads(request["threads"])
    return on_cpu(time.process_time if request["cpuTime"] else time.perf_counter)


def row_of(peer, milliseconds):
    """The times of a peer; one that fails says why and does not end the others."""
    try:
        if peer.check:
            peer.check(peer.run(0))
        return {"peer": peer.name, **timed(peer.run, peer.reset, milliseconds)}
    except Exception as error:
        return {"peer": peer.name, "error": reason(error)}


def reason(error):
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def answer(text, measure):
    """Times every peer that measure(case) yields for the cases in `text`; prints each row as soon as it is there."""
    request = json.loads(text)
    milliseconds = clock_of(request)
    for case in request["cases"]:
        about = {key: case[key] for key in ("name", "shape", "dtype")}
        try:
            for peer in measure({**case, "device": request["device"]}):
                show({**about, **row_of(Peer(*peer), milliseconds)})
        except Exception as error:
            show({**about, "peer": "PyTorch", "error": reason(error)})
        torch.cuda.empty_cache()


def show(answer):
    """A line of JSON on stdout."""
    print(json.dumps(answer), flush=True)
