#!/usr/bin/env python3
"""Makes vectors.json: what PyTorch on the CPU says of the operations of this crate.

Run once, with torch 2.5.1 and numpy 2.4.6 (the file names the versions it was made with):

    python3 -m venv venv && venv/bin/pip install torch==2.5.1 numpy==2.4.6
    venv/bin/python golden/make.py > golden/vectors.json

Inputs are sixteenths, so that they are short to write, exact in single precision, and equal now and then (a
maximum has ties). Results are computed in double precision and rounded once.
"""

import json
import platform

import numpy
import torch
import torch.nn.functional as F

GENERATOR = torch.Generator().manual_seed(20261129)


def tensor(*dims):
    """Sixteenths between -2 and 2."""
    return torch.randint(-32, 33, dims, generator=GENERATOR).double() / 16


def written(value):
    """A tensor as it is written: its dimensions, its elements in order, each as short as it can be."""
    value = value.detach()
    elements = [float(str(x)) for x in value.float().numpy().ravel()]
    return {"dims": list(value.shape), "data": elements}


def gradients(forward, *inputs):
    """The output, a gradient for it, and what it is at each input."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = forward(*inputs)
    dy = tensor(*y.shape)
    y.backward(dy)
    return y, dy, [x.grad for x in inputs]


def convolution(name, x, w, pad, stride, dilation, groups=1, flip=False):
    spatial = len(x) - 2
    run = [None, F.conv1d, F.conv2d, F.conv3d][spatial]
    axes = list(range(2, spatial + 2))

    def forward(x, w, b):
        w = w.flip(axes) if flip else w
        return run(x, w, b, stride=stride, padding=pad, dilation=dilation, groups=groups)

    x, w, b = tensor(*x), tensor(*w), tensor(w[0])
    y, dy, (dx, dw, db) = gradients(forward, x, w, b)
    return {
        "op": "convolution", "name": name, "pad": pad, "stride": stride, "dilation": dilation,
        "groups": groups, "flip": flip, "x": written(x), "w": written(w), "b": written(b),
        "y": written(y), "dy": written(dy), "dx": written(dx), "dw": written(dw), "db": written(db),
    }


def pooling(name, mode, x, window, pad, stride, ceil=False):
    spatial = len(x) - 2
    if mode == "max":
        run = [None, F.max_pool1d, F.max_pool2d, F.max_pool3d][spatial]
        forward = lambda x: run(x, window, stride, pad, ceil_mode=ceil)
    else:
        run = [None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][spatial]
        forward = lambda x: run(x, window, stride, pad, count_include_pad=mode == "including")
    x = tensor(*x)
    y, dy, (dx,) = gradients(forward, x)
    return {
        "op": "pooling", "name": name, "mode": mode, "window": window, "pad": pad, "stride": stride,
        "x": written(x), "y": written(y), "dy": written(dy), "dx": written(dx),
    }


def softmax(algorithm, mode, *dims):
    def forward(x):
        flat = x.flatten(1) if mode == "instance" else x
        y = F.log_softmax(flat, 1) if algorithm == "log" else F.softmax(flat, 1)
        return y.reshape(x.shape)

    x = tensor(*dims) * 2
    y, dy, (dx,) = gradients(forward, x)
    return {
        "op": "softmax", "algorithm": algorithm, "mode": mode,
        "x": written(x), "y": written(y), "dy": written(dy), "dx": written(dx),
    }


def activation(function, forward, coefficient=0.0):
    x = tensor(2, 3, 4, 5) * 2
    x = x + (x == 0) / 16  # not at the bend, where a gradient is a matter of taste
    y, dy, (dx,) = gradients(forward, x)
    return {
        "op": "activation", "function": function, "coefficient": coefficient,
        "x": written(x), "y": written(y), "dy": written(dy), "dx": written(dx),
    }


def add(a, c, alpha, beta):
    a, c = tensor(*a), tensor(*c)
    return {
        "op": "add", "alpha": alpha, "beta": beta,
        "a": written(a), "c": written(c), "result": written(alpha * a + beta * c),
    }


def gemm(m, n, k, left, right, alpha, beta):
    a = tensor(*((k, m) if left else (m, k)))
    b = tensor(*((n, k) if right else (k, n)))
    c = tensor(m, n)
    result = torch.addmm(c, a.T if left else a, b.T if right else b, beta=beta, alpha=alpha)
    return {
        "op": "gemm", "transposed": [left, right], "sizes": [m, n, k], "alpha": alpha, "beta": beta,
        "a": written(a), "b": written(b), "c": written(c), "result": written(result),
    }


def gemv(m, n, transposed, alpha, beta):
    a = tensor(m, n)
    x, y = (tensor(m), tensor(n)) if transposed else (tensor(n), tensor(m))
    result = torch.addmv(y, a.T if transposed else a, x, beta=beta, alpha=alpha)
    return {
        "op": "gemv", "transposed": transposed, "alpha": alpha, "beta": beta,
        "a": written(a), "x": written(x), "y": written(y), "result": written(result),
    }


def vectors(n, alpha):
    x, y = tensor(n), tensor(n)
    return {
        "op": "vectors", "alpha": alpha, "x": written(x), "y": written(y), "axpy": written(y + alpha * x),
        "dot": float(torch.dot(x, y)), "norm": float(torch.linalg.vector_norm(x)),
    }


def dropout(p, n):
    """What dropout does to ones: how many stay, what they become, and how often two neighbours stay."""
    torch.manual_seed(7)
    y = F.dropout(torch.ones(n), p, training=True)
    kept = y != 0
    return {
        "op": "dropout", "probability": p, "elements": n, "kept": int(kept.sum()),
        "pairs": int((kept[1:] & kept[:-1]).sum()), "scale": float(str(y.max().numpy())),
    }


CASES = [
    convolution("plain", (2, 3, 6, 5), (4, 3, 3, 2), [0, 0], [1, 1], [1, 1]),
    convolution("padding", (1, 2, 5, 4), (3, 2, 3, 3), [1, 2], [1, 1], [1, 1]),
    convolution("stride", (2, 2, 7, 8), (3, 2, 3, 3), [1, 0], [2, 3], [1, 1]),
    convolution("dilation", (1, 2, 9, 8), (3, 2, 3, 2), [2, 1], [1, 1], [2, 3]),
    convolution("groups", (2, 6, 5, 5), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 2),
    convolution("depthwise", (1, 5, 6, 6), (10, 1, 3, 3), [1, 1], [2, 2], [1, 1], 5),
    convolution("all at once", (2, 4, 11, 9), (6, 2, 3, 2), [3, 1], [2, 3], [2, 1], 2),
    convolution("turned", (2, 4, 8, 9), (6, 2, 3, 2), [2, 1], [2, 1], [1, 2], 2, flip=True),
    convolution("pointwise", (2, 9, 3, 4), (7, 9, 1, 1), [0, 0], [1, 1], [1, 1]),
    convolution("pointwise, padded and strided", (1, 3, 4, 5), (2, 3, 1, 1), [1, 1], [2, 2], [1, 1]),
    convolution("whole input", (3, 2, 4, 4), (5, 2, 4, 4), [0, 0], [1, 1], [1, 1]),
    convolution("deep", (1, 40, 3, 3), (3, 40, 3, 3), [1, 1], [1, 1], [1, 1]),
    convolution("one dimension", (2, 3, 12), (4, 3, 4), [2], [3], [2]),
    convolution("three dimensions", (1, 2, 5, 4, 6), (3, 2, 3, 2, 3), [1, 0, 2], [2, 1, 1], [1, 2, 1]),
    convolution("three, groups, turned", (1, 4, 4, 4, 5), (4, 2, 2, 3, 2), [0, 1, 1], [1, 2, 2], [2, 1, 1], 2, True),
    pooling("max", "max", (2, 3, 6, 6), [2, 2], [0, 0], [2, 2]),
    pooling("max, overlapping, padded", "max", (2, 2, 7, 6), [3, 3], [1, 1], [2, 1]),
    pooling("max, windows hang over", "max", (1, 2, 8, 6), [3, 3], [0, 0], [2, 2], ceil=True),
    pooling("max, three", "max", (1, 2, 5, 4, 6), [2, 3, 2], [1, 1, 0], [2, 1, 2]),
    pooling("average with padding", "including", (2, 2, 7, 6), [3, 2], [1, 1], [2, 1]),
    pooling("average without padding", "excluding", (2, 2, 7, 6), [3, 2], [1, 1], [2, 1]),
    pooling("average with, three", "including", (1, 2, 4, 5, 4), [2, 3, 3], [1, 1, 1], [1, 2, 2]),
    pooling("average without, three", "excluding", (1, 2, 4, 5, 4), [2, 3, 3], [1, 1, 1], [1, 2, 2]),
    pooling("average, one", "excluding", (2, 2, 9), [4], [2], [3]),
    *(softmax(a, m, 2, 5, 3, 2) for a in ("fast", "accurate", "log") for m in ("instance", "channel")),
    softmax("accurate", "channel", 2, 3, 2, 3, 2),
    activation("sigmoid", torch.sigmoid),
    activation("relu", torch.relu),
    activation("tanh", torch.tanh),
    activation("clipped relu", lambda x: torch.clamp(x, 0, 1.53125), 1.53125),
    activation("elu", lambda x: F.elu(x, 0.75), 0.75),
    activation("identity", lambda x: x * 1),
    activation("swish", lambda x: x * torch.sigmoid(1.5 * x), 1.5),
    add((1, 4, 1, 1), (2, 4, 3, 5), 1.0, 1.0),
    add((2, 1, 3, 1), (2, 4, 3, 5), 0.5, -0.25),
    add((2, 4, 3, 5), (2, 4, 3, 5), 2.0, 0.0),
    *(gemm(7, 9, 11, a, b, 1.5, -0.5) for a in (False, True) for b in (False, True)),
    gemm(5, 3, 300, False, True, 1.0, 1.0),
    gemm(6, 6, 1, True, False, -1.0, 0.0),
    gemv(6, 5, False, 1.5, 0.5),
    gemv(6, 5, True, 1.5, 0.5),
    vectors(37, -0.625),
    *(dropout(p, 100_000) for p in (0.1, 0.25, 0.5, 0.9)),
]

made_with = {"torch": torch.__version__, "numpy": numpy.__version__, "python": platform.python_version()}
print(json.dumps({"made_with": made_with, "cases": CASES}, separators=(",", ":")).replace('{"op"', '\n{"op"'))
