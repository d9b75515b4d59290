"""Why tensors that came over a link are not taken."""

from __future__ import annotations

from enum import StrEnum


class TensorFault(StrEnum):
    """What is wrong with a tensor; the label of its metric."""

    CORRUPT = "corrupt"
    NOT_FINITE = "not_finite"
    WRONG_SHAPE = "wrong_shape"
    OUT_OF_ORDER = "out_of_order"


class RefusedTensor(Exception):
    """A tensor that is dropped alone: the link goes on."""

    def __init__(self, fault: TensorFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
