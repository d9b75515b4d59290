"""How many rows a product of an expert may have: so many that all give a row the same bits.

Which rows of a forward an expert gets depends on what else is in the forward. A row's
rounding is that of the kernel which the number of rows selects, and a kernel may take
the last rows of a product otherwise than the rest: on a 2-core AVX512 machine float32
products of 1, 2, 3 and 7 rows round otherwise than those of 4. So an expert's rows are
multiplied in groups of a few fixed sizes, the last filled up. One random input of each
shape tells two kernels apart: see `engine.verifiers.exactness`, which checks the whole
model, in few of the divisions that there are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.device import HOST

SIZES = (4, 8, 16, 32, 64)
"""Rows of a product, those that forwards have."""
ALONE = (1,)
"""One row a product is the same kernel and the same place in it, whatever the machine."""

Kind = tuple[type[nn.Module], int, int, torch.dtype]
"""A product's class, its inputs and outputs, and their dtype."""
Known = dict[tuple[Kind, int], tuple[int, ...]]
"""Sizes that agree, by the kind of the product and the number of threads."""


class GroupSizes:
    """The sizes of groups of which all products of a layer give a row the same bits."""

    def __init__(self, known: Known) -> None:
        """`known` is shared with other layers, and grows."""
        self._known = known
        self._products: dict[Kind, nn.Module] = {}
        self._agreeing: dict[int, tuple[int, ...]] = {}

    def add(self, product: nn.Module, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        """Has `product` among those that must agree: of each kind one stands for all."""
        self._products.setdefault((type(product), inputs, outputs, dtype), product)

    def agreeing(self, place: torch.device = HOST.place) -> tuple[int, ...]:
        """Ascending, in the calling thread, which is the one that is to compute them at `place`.

        Takes milliseconds, once for each kind of product and number of threads.
        """
        threads = torch.get_num_threads()
        if threads not in self._agreeing:
            common = set(SIZES)
            for kind, product in self._products.items():
                if (kind, threads) not in self._known:
                    self._known[kind, threads] = agreeing_sizes(product, kind[1], kind[3], place)
                common &= set(self._known[kind, threads])
            self._agreeing[threads] = tuple(sorted(common)) or ALONE
        return self._agreeing[threads]


def agreeing_sizes(
    product: nn.Module, inputs: int, dtype: torch.dtype, place: torch.device = HOST.place
) -> tuple[int, ...]:
    """Those of `SIZES` that give a row of `product` the same bits, in each of their places."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(SIZES[-1], inputs, generator=generator).to(place, dtype)
    for index, base in enumerate(SIZES):
        expected = _in_groups(product, values, base)
        if all(
            torch.equal(_in_groups(product, values.roll(place, 0), base), expected.roll(place, 0))
            for place in range(1, base)
        ):
            # A row's place among `base` changes nothing, so that each place of the others counts.
            return base, *(
                size
                for size in SIZES[index + 1 :]
                if torch.equal(_in_groups(product, values, size), expected)
            )
    return ()


def _in_groups(product: nn.Module, values: Tensor, size: int) -> Tensor:
    return torch.cat([product(group) for group in torch.split(values, size)])
