"""onnx_graph.py: a model that bench/exported-graph.js wrote, as a PyTorch module: straight-line code, a call for each node.

Operators are those of ONNX at opset 25, as its specification defines them. What depends on constants only is computed
here, once; inputs that say how to compute (shapes, axes) must be such constants.
"""

import json
import operator
from functools import reduce
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

ELEMENT_TYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def around(x, window, auto_pad, pads, strides, dilations, ceil_mode=0):
    """Elements in front of and behind each spatial dimension."""
    rank = len(window)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        front, back = [], []
        for size, extent, stride, dilation in zip(x.shape[2:], window, strides, dilations):
            total = max(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
            less, more = total // 2, total - total // 2
            front.append(less if auto_pad == "SAME_UPPER" else more)
            back.append(more if auto_pad == "SAME_UPPER" else less)
        return front, back
    pads = pads or [0] * (2 * rank)
    return pads[:rank], pads[rank:]


def padded(x, front, back, value=0.0):
    """The input, with elements around it where the two sides differ, and what is left to pad on both."""
    if front == back:
        return x, front
    sides = [size for pair in zip(reversed(front), reversed(back)) for size in pair]
    return F.pad(x, sides, value=value), [0] * len(front)


def conv(x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    window = list(w.shape[2:])
    strides, dilations = strides or [1] * len(window), dilations or [1] * len(window)
    x, padding = padded(x, *around(x, window, auto_pad, pads, strides, dilations))
    return CONVOLUTIONS[len(window)](x, w, b, strides, padding, dilations, group)


def max_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, strides=None, storage_order=0):
    strides, dilations = strides or [1] * len(kernel_shape), dilations or [1] * len(kernel_shape)
    sides = around(x, kernel_shape, auto_pad, pads, strides, dilations)
    x, padding = padded(x, *sides, value=float("-inf"))
    return MAX_POOLS[len(kernel_shape)](x, kernel_shape, strides, padding, dilations, bool(ceil_mode))


def average_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, pads=None, strides=None, dilations=None):
    strides, ones = strides or [1] * len(kernel_shape), [1] * len(kernel_shape)
    front, back = around(x, kernel_shape, auto_pad, pads, strides, ones)
    if (front != back and not count_include_pad) or (dilations or ones) != ones:
        raise NotImplementedError("AveragePool with uneven padding that does not count, or with dilations")
    x, padding = padded(x, front, back)
    pool = AVERAGE_POOLS[len(kernel_shape)]
    return pool(x, kernel_shape, strides, padding, bool(ceil_mode), bool(count_include_pad))


def lrn(x, *, size, alpha=1e-4, beta=0.75, bias=1.0):
    if size % 2 == 0:
        raise NotImplementedError("LRN over an even number of channels")
    return F.local_response_norm(x, size, alpha, beta, bias)


def batch_norm(x, gain, shift, mean, variance, *, epsilon=1e-5, momentum=0.9, training_mode=0):
    return F.batch_norm(x, mean, variance, gain, shift, False, 0.0, epsilon)


def layer_norm(x, gain, shift=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    return F.layer_norm(x, x.shape[axis:], gain, shift, epsilon)


def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    a = a.t() if transA else a
    if alpha == 1 and (c is None or (beta == 1 and c.dim() == 1)):
        return F.linear(a, b if transB else b.t(), c)
    product = alpha * (a @ (b.t() if transB else b))
    return product if c is None else product + beta * c


def divide(a, b):
    inexact = isinstance(a, float) or isinstance(b, float) or any(torch.is_tensor(x) and x.is_floating_point() for x in (a, b))
    return a / b if inexact else torch.div(a, b, rounding_mode="trunc")


def reduction(function):
    def run(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        if not axes and noop_with_empty_axes:
            return x
        return function(x, dim=axes or list(range(x.dim())), keepdim=bool(keepdims))

    return run


def reshape(x, shape, *, allowzero=0):
    return x.reshape(shape if allowzero else [x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def flatten(x, *, axis=1):
    return x.reshape(reduce(operator.mul, x.shape[:axis], 1), -1)


def transpose(x, *, perm=None):
    if perm == [0, 2, 3, 1]:  # heads of keys; in one step inductor takes it for (0, 1, 3, 2) and fails (PyTorch 2.13)
        return x.permute(0, 2, 1, 3).transpose(2, 3)
    return x.permute(perm or list(reversed(range(x.dim()))))


def unsqueeze(x, axes):
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def squeeze(x, axes=None):
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def split(x, sizes=None, *, axis=0, num_outputs=None):
    return x.split(sizes or -(-x.shape[axis] // num_outputs), axis)


def sliced(x, starts, ends, axes=None, steps=None):
    where = [slice(None)] * x.dim()
    for i, axis in enumerate(axes or range(len(starts))):
        if steps and steps[i] < 0:
            raise NotImplementedError("Slice backwards")
        where[axis] = slice(starts[i], ends[i], steps[i] if steps else 1)
    return x[tuple(where)]


def gather(x, indices, *, axis=0):
    axis %= x.dim()
    if axis == 0 and x.dim() == 2:
        return F.embedding(indices, x)
    picked = x.index_select(axis, indices.reshape(-1))
    return picked.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


OPERATORS = {
    **{name: getattr(torch, name.lower()) for name in ("Abs", "Erf", "Exp", "Log", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh")},
    "Reciprocal": torch.reciprocal,
    "Not": torch.logical_not,
    "And": torch.logical_and,
    "Identity": lambda x: x,
    "Dropout": lambda x, ratio=None, training=None, *, seed=0: x,
    "Elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
    "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate=approximate),
    "Softmax": lambda x, *, axis=-1: torch.softmax(x, axis),
    "LogSoftmax": lambda x, *, axis=-1: torch.log_softmax(x, axis),
    "Clip": torch.clamp,
    "Cast": lambda x, *, to, saturate=1, round_mode="up": x.to(to),
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": divide,
    "Pow": operator.pow,
    "Equal": operator.eq,
    "Less": operator.lt,
    "Greater": operator.gt,
    "Sum": lambda *xs: reduce(operator.add, xs),
    "Max": lambda *xs: reduce(torch.maximum, xs),
    "Min": lambda *xs: reduce(torch.minimum, xs),
    "Where": torch.where,
    "MatMul": torch.matmul,
    "Gemm": gemm,
    "Conv": conv,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": lambda x: x.mean(dim=list(range(2, x.dim())), keepdim=True),
    "LRN": lrn,
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "ReduceMean": reduction(torch.mean),
    "ReduceSum": reduction(torch.sum),
    "ReduceMax": reduction(torch.amax),
    "Reshape": reshape,
    "Flatten": flatten,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "Squeeze": squeeze,
    "Concat": lambda *xs, axis: torch.cat(xs, axis),
    "Split": split,
    "Slice": sliced,
    "Gather": gather,
    "Expand": lambda x, shape: x.expand(torch.broadcast_shapes(x.shape, tuple(shape))),
    "Range": lambda start, limit, delta: torch.arange(start, limit, delta),
}
for name, function in OPERATORS.items():
    if function.__name__ == "<lambda>":  # code that torch.fx writes calls functions by their names
        function.__name__ = name

# Inputs that are Python numbers when an operator is called.
SETTINGS = {
    **{name: (1,) for name in ("Expand", "ReduceMax", "ReduceMean", "ReduceSum", "Reshape", "Split", "Squeeze", "Unsqueeze")},
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
}
ARITHMETIC = {"Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater"}


class Builder:
    """Nodes of a graph of torch.fx, one by one; `values` holds tensors where they are constant."""

    def __init__(self, weights):
        self.root, self.graph = torch.nn.Module(), torch.fx.Graph()
        self.values = dict(weights)
        self.places = {}

    def place(self, name):
        """The value as a node; a constant becomes a buffer of the module."""
        value = self.values[name]
        if not torch.is_tensor(value):
            return value
        if name not in self.places:
            buffer = f"constant{len(self.places)}"
            self.root.register_buffer(buffer, value)
            self.places[name] = self.graph.get_attr(buffer)
        return self.places[name]

    def argument(self, op, position, name):
        if name == "":
            return None
        value = self.values[name]
        if position in SETTINGS.get(op, ()):
            if not torch.is_tensor(value):
                raise NotImplementedError(f"{op} whose input {position} is computed")
            return value.tolist()
        return value.item() if torch.is_tensor(value) and value.dim() == 0 and op in ARITHMETIC else value

    def add(self, op, inputs, outputs, attributes):
        if op not in OPERATORS:
            raise NotImplementedError(f"the operator {op}")
        function = OPERATORS[op]
        names = [name for i, name in enumerate(inputs) if name and i not in SETTINGS.get(op, ())]
        if all(torch.is_tensor(self.values[name]) for name in names):
            made = function(*(self.argument(op, i, name) for i, name in enumerate(inputs)), **attributes)
            made = torch.as_tensor(made) if not isinstance(made, (tuple, list)) else made
        else:
            arguments = [self.argument(op, i, name) for i, name in enumerate(inputs)]
            arguments = [self.place(inputs[i]) if torch.is_tensor(x) else x for i, x in enumerate(arguments)]
            made = self.graph.call_function(function, tuple(arguments), attributes)
        many = len(outputs) > 1
        for i, name in enumerate(outputs):
            constant = isinstance(made, (tuple, list)) or torch.is_tensor(made)
            part = made if not many else made[i] if constant else self.graph.call_function(operator.getitem, (made, i))
            self.values[name] = part


def load_graph(folder, dtype=None):
    """The module of a folder, in `dtype` where it has f32, and names of its inputs and outputs. Its forward takes the
    inputs in this order and returns a tuple of the outputs."""
    described = json.loads((Path(folder) / "graph.json").read_text())
    builder = Builder(load_tensors(folder, "weights", dtype))
    for i, name in enumerate(described["inputs"]):
        builder.values[name] = builder.graph.placeholder(f"input{i}")
    for node in described["nodes"]:
        attributes = node["attributes"]
        if node["op"] == "Cast":
            to = ELEMENT_TYPES[attributes["to"]]
            attributes["to"] = dtype if dtype and to == torch.float32 else to
        builder.add(node["op"], node["inputs"], node["outputs"], attributes)
    builder.graph.output(tuple(builder.place(name) for name in described["outputs"]))
    module = torch.fx.GraphModule(builder.root, builder.graph)
    return module.eval(), described["inputs"], described["outputs"]


def load_tensors(folder, name, dtype=None):
    """Tensors of `<name>.safetensors`, those of f32 in `dtype`."""
    tensors = load_file(Path(folder) / f"{name}.safetensors")
    return {name: x.to(dtype) if dtype and x.dtype == torch.float32 else x for name, x in tensors.items()}
