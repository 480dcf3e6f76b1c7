"""Matrix products on one core. numpy hands a product to BLAS, which starts a thread on each core for all but tiny ones.

For the sizes of a team the threads mostly wait for each other, and burn 25 times the CPU of the product while they
wait. So a product is cut into blocks that are too small for BLAS to start threads: OpenBLAS does so above 2**18
multiplications, and for a matrix and a vector, or two vectors, far sooner. Nothing is set for the rest of the process.
"""

from typing import TypeVar

import numpy
from numpy.typing import NDArray

_Number = TypeVar("_Number", numpy.float32, numpy.float64)

_MOST_MULTIPLICATIONS = 2**18
_DEPTH = 512  # of a block: how many numbers are added up for each number of the result
_WIDTH = 128  # of a block of the result
_FEWEST_ROWS = 2  # a block of one row would be a vector


def product(left: NDArray[_Number], right: NDArray[_Number]) -> NDArray[_Number]:
    """`left @ right` of two matrices."""
    height, depth = left.shape
    if height == 1:
        return likeness(right.T, left[0])[None, :]
    result: NDArray[_Number] = numpy.zeros((height, right.shape[1]), left.dtype)
    for column in range(0, right.shape[1], _WIDTH):
        part = result[:, column : column + _WIDTH]
        for start in range(0, depth, _DEPTH):
            deep = slice(start, start + _DEPTH)
            part += _block_product(left[:, deep], right[deep, column : column + _WIDTH])
    return result


def _block_product(left: NDArray[_Number], right: NDArray[_Number]) -> NDArray[_Number]:
    """Of matrices that are narrow enough for blocks of a few rows each."""
    height, depth = left.shape
    width = right.shape[1]
    if width == 1:
        return likeness(left, right[:, 0])[:, None]
    rows = min(height, max(_FEWEST_ROWS, _MOST_MULTIPLICATIONS // (depth * width)))
    whole = height - height % rows
    result: NDArray[_Number] = numpy.empty((height, width), left.dtype)
    result[:whole] = numpy.matmul(left[:whole].reshape(-1, rows, depth), right).reshape(whole, width)
    if whole < height:  # what is left over, with as many rows before it as make up a block
        result[height - rows :] = numpy.matmul(left[height - rows :], right)
    return result


def inner(left: NDArray[_Number], right: NDArray[_Number]) -> float:
    """The inner product of two vectors."""
    return float(numpy.einsum("d,d->", left, right))


def likeness(points: NDArray[_Number], vector: NDArray[_Number]) -> NDArray[_Number]:
    """The inner product of each row with a vector."""
    return numpy.einsum("pd,d->p", points, vector)
