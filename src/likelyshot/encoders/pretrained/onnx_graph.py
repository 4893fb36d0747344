"""EfficientNet-Lite as an ONNX graph, which ONNX Runtime runs several times faster than torch on a CPU.

The package `onnx` is needed to write a graph, but not to run one, nor to read the weights in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from likelyshot.encoders.networks.efficientnet_lite import EfficientNetLite0, SameConv, same_padding
from likelyshot.encoders.pretrained import need


def build_graph(network: EfficientNetLite0, size: int, mean: float, scale: float) -> bytes:
    """Write the graph from images (n, size, size, 3), uint8, to features (n, dim), as an ONNX model.

    The graph is built by hand, node by node: that is quick enough to do at every start. It needs the package `onnx`.
    """
    onnx = need("onnx", "onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, values: Any) -> str:
        constants.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def convolve(conv: SameConv, x: str) -> str:
        nonlocal size
        kernel, stride, number = conv.kernel_size[0], conv.stride[0], len(nodes)
        before, after = same_padding(size, kernel, stride)
        size = -(-size // stride)
        assert conv.bias is not None
        weight, bias = (t.numpy() for t in (conv.weight, conv.bias))
        x = node(
            "Conv",
            x,
            constant(f"w{number}", weight),
            constant(f"b{number}", bias),
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=conv.groups,
        )
        return node("Clip", x, zero, six) if conv.active else x

    shape = ["n", size, size, 3]
    zero, six = constant("zero", np.float32(0)), constant("six", np.float32(6))
    x = node("Transpose", node("Cast", "images", to=floats), perm=[0, 3, 1, 2])
    x = node("Mul", node("Sub", x, constant("mean", np.float32(mean))), constant("scale", np.float32(1 / scale)))
    x = convolve(network.stem, x)
    for block in network.blocks:
        out = x
        for conv in block.convs:  # type: ignore[union-attr]
            out = convolve(conv, out)
        x = node("Add", out, x) if block.adds else out
    x = node("GlobalAveragePool", convolve(network.head, x))
    nodes.append(helper.make_node("Flatten", [x], ["features"], axis=1))
    graph = helper.make_graph(
        nodes,
        "efficientnet_lite0",
        [helper.make_tensor_value_info("images", onnx.TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("features", floats, ["n", network.dim])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def read_network(graph: bytes) -> EfficientNetLite0:
    """Read the weights of a graph of `build_graph` into the network that it was built from, EfficientNet-Lite0.

    The constants stand in the graph in the order of the convolutions, each weight before its bias. An ONNX model is a
    message of protobuf; the numbers here are the fields of graph, initializer, dims and raw_data in onnx.proto.
    """
    (body,) = (value for field, value in _fields(graph) if field == 7)
    arrays = [_array(value) for field, value in _fields(body) if field == 5]
    weights = iter([array for array in arrays if array.ndim])  # the others are the numbers of Clip and of the pixels
    network = EfficientNetLite0()
    inner = [conv for block in network.blocks for conv in block.convs]  # type: ignore[union-attr]
    with torch.no_grad():
        for conv in (network.stem, *inner, network.head):
            conv.weight.copy_(torch.from_numpy(next(weights)))
            conv.bias.copy_(torch.from_numpy(next(weights)))
    return network.eval().requires_grad_(False)


def _array(tensor: memoryview) -> NDArray[np.float32]:
    fields = list(_fields(tensor))
    shape = [int(value) for field, value in fields if field == 1]
    (data,) = (value for field, value in fields if field == 9)
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)


def _fields(message: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    r"""Give the fields of a message of protobuf with their numbers: integers, and bytes as views.

    >>> [(field, value if field == 1 else bytes(value)) for field, value in _fields(b"\x08\x96\x01\x12\x02hi")]
    [(1, 150), (2, b'hi')]
    """
    view, place = memoryview(message), 0

    def integer() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = view[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(view):
        key = integer()
        if key & 7 == 0:
            yield key >> 3, integer()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or integer()  # of a fixed width, or with its length before it
        yield key >> 3, view[place : place + size]
        place += size
