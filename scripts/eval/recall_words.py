"""The words that recall tasks use as keys and values.

Each word is rare in Python source, so that a key in the haystack is the fact's own key. The
tokenizer's training text repeats the words (see `python_corpus`), so that each becomes one token
with its leading space.
"""

from __future__ import annotations

_LISTED = """
acorn almond amber antler apricot aspen autumn avocado badger bamboo banana barley basil beaver
beetle birch biscuit bishop blanket blossom bottle bracelet bramble brass bread breeze bronze butter
cabin cactus camel canary candle canyon carpet carrot castle cedar celery chalk cherry chestnut
chimney cinnamon citrus clarinet clay clover cobalt coconut comet copper coral cottage cotton cradle
crane cricket crimson crystal curtain cypress daisy damson desert diamond dolphin donkey dragon
eagle ebony elbow ember emerald falcon feather fennel fern ferry fiddle finch flannel flute forest
fossil fountain frost galaxy garden garlic garnet ginger giraffe glacier glove goose granite grape
gravel guitar hammer harbor harp harvest hawk hazel heron hickory honey horse iceberg indigo iron
island ivory ivy jacket jaguar jasmine jungle juniper kettle kitten ladder lagoon lantern lark
laurel lava lavender lemon leopard lettuce lily linen lizard lobster locust lotus lumber magnet
mango maple marble meadow melon mercury mint mirror monkey moss mountain mustard myrtle nectar
needle nickel nutmeg oak oasis ocean olive onion onyx opal orange orchard orchid otter owl oyster
paddle palm panda paper parrot peach peanut pearl pebble pelican pepper piano pigeon pillow pine
plum pocket poppy potato prairie prism pumpkin quail quartz quilt rabbit radish raven reef ribbon
river robin rocket rose ruby saddle saffron sage salmon sandal sapphire scarlet shadow silk silver
sparrow spider spruce squash stone storm sugar summer sunset swan tablet tailor teapot temple
thistle thunder tiger timber topaz tower trout tulip turnip umbrella valley vanilla velvet violet
violin walnut walrus weasel whale wheat willow winter wolf yarrow zebra zinc
"""

WORDS: tuple[str, ...] = tuple(_LISTED.split())
"""Lower-case English nouns, no two equal, in alphabetical order."""
