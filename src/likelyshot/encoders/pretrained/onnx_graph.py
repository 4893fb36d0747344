"""EfficientNet-Lite0 as an ONNX graph, which ONNX Runtime runs several times faster than torch on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelyshot.encoders.networks.efficientnet_lite import EfficientNetLite0, SameConv, same_padding
from likelyshot.encoders.pretrained import need


def build_graph(network: EfficientNetLite0, size: int, mean: float, scale: float) -> bytes:
    """Write the graph from images (n, size, size, 3), uint8, to features (n, dim), as an ONNX model.

    The graph is built by hand, node by node: that is quick enough to do at every start.
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
