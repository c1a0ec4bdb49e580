#!/usr/bin/env python3
"""Makes with_numpy.json: what NumPy says of reductions, normalisations, and products in double precision.

Run once, with numpy 2.4.6 (the file names the versions it was made with):

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6
    venv/bin/python golden/with_numpy.py > golden/with_numpy.json

Inputs are sixteenths, as those of make.py; of products in double precision, thirds of them, so that single precision
does not hold them.
"""

import json
import platform

import numpy

RANDOM = numpy.random.default_rng(20261129)


def tensor(*dims):
    """Sixteenths between -2 and 2."""
    return RANDOM.integers(-32, 33, dims) / 16


def written(value):
    value = numpy.asarray(value, dtype=float)
    return {"dims": list(value.shape), "data": [float(x) for x in value.ravel()]}


def non_zero_product(x, axis):
    return numpy.where(x == 0, 1.0, x).prod(axis)


REDUCTIONS = {
    "add": lambda x, axis: x.sum(axis),
    "multiply": lambda x, axis: x.prod(axis),
    "minimum": lambda x, axis: x.min(axis),
    "maximum": lambda x, axis: x.max(axis),
    "maximum size": lambda x, axis: abs(x).max(axis),
    "average": lambda x, axis: x.mean(axis),
    "norm 1": lambda x, axis: numpy.linalg.norm(x, 1, axis),
    "norm 2": lambda x, axis: numpy.linalg.norm(x, 2, axis),
    "multiply non-zero": non_zero_product,
}
WHERE = {
    "minimum": lambda x, axis: x.argmin(axis),
    "maximum": lambda x, axis: x.argmax(axis),
    "maximum size": lambda x, axis: abs(x).argmax(axis),
}


def reduction(op, dims, reduced):
    x = tensor(*dims)
    # The reduced dimensions last and as one, in their order.
    stay = [i for i in range(len(dims)) if i not in reduced]
    flat = x.transpose(stay + reduced).reshape([dims[i] for i in stay] + [-1])
    shape = [1 if i in reduced else dim for i, dim in enumerate(dims)]
    where = WHERE.get(op, lambda x, axis: numpy.zeros(0))(flat, -1)
    return {
        "op": "reduction", "name": op, "a": written(x), "c": written(REDUCTIONS[op](flat, -1).reshape(shape)),
        "indices": [int(index) for index in where.ravel()],
    }


def product(m, n, k, left, right, alpha, beta):
    a, b, c = tensor(*((k, m) if left else (m, k))) / 3, tensor(*((n, k) if right else (k, n))), tensor(m, n)
    result = alpha * (a.T if left else a) @ (b.T if right else b) + beta * c
    return {
        "op": "product", "transposed": [left, right], "sizes": [m, n, k], "alpha": alpha, "beta": beta,
        "a": written(a), "b": written(b), "c": written(c), "result": written(result),
    }


def vectors(n, alpha):
    x, y = tensor(n) / 3, tensor(n) / 7
    return {
        "op": "vectors", "alpha": alpha, "x": written(x), "y": written(y), "axpy": written(alpha * x + y),
        "dot": float(x @ y), "norm": float(numpy.linalg.norm(x)), "sum": float(abs(x).sum()),
    }


def normalised(x, n, alpha, beta, k):
    channels = x.shape[1]
    y = numpy.empty_like(x)
    for c in range(channels):
        window = x[:, max(0, c - (n - 1) // 2):c + n // 2 + 1]
        y[:, c] = x[:, c] / (k + alpha / n * (window**2).sum(1)) ** beta
    return y


def normalization(dims, n, alpha, beta, k):
    x, dy = tensor(*dims), tensor(*dims)
    dx = numpy.empty(dims)
    # The derivative is the imaginary part for a step that is tiny and imaginary.
    for at in numpy.ndindex(*dims):
        stepped = x.astype(complex)
        stepped[at] += 1e-30j
        dx[at] = (dy * normalised(stepped, n, alpha, beta, k).imag).sum() / 1e-30
    return {
        "op": "normalization", "n": n, "parameters": [alpha, beta, k], "x": written(x),
        "y": written(normalised(x, n, alpha, beta, k)), "dy": written(dy), "dx": written(dx),
    }


CASES = [
    *(reduction(op, (2, 3, 4, 5), [2, 3]) for op in REDUCTIONS),
    *(reduction(op, (3, 4, 2, 3), [0, 2]) for op in REDUCTIONS),
    *(reduction(op, (2, 6, 3), [0, 1, 2]) for op in REDUCTIONS),
    *(product(7, 9, 11, a, b, 1.5, -0.5) for a in (False, True) for b in (False, True)),
    product(70, 3, 5, False, True, 1 / 3, 0.0),
    vectors(37, -1 / 3),
    normalization((2, 7, 2, 3), 5, 1e-4, 0.75, 2.0),
    normalization((2, 7, 2, 3), 5, 2.0, 0.75, 0.5),
    normalization((1, 6, 3), 4, 1.5, 0.5, 1.0),
    normalization((1, 3, 2), 16, 1.0, 2.0, 1.0),
    normalization((2, 2), 1, 1.0, 1.0, 1.0),
]

made_with = {"numpy": numpy.__version__, "python": platform.python_version()}
print(json.dumps({"made_with": made_with, "cases": CASES}, separators=(",", ":")).replace('{"op"', '\n{"op"'))
