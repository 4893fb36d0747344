"""Pure tensor functions: the mathematics that the methods are made of."""

#: Modules whose functions are in another one now; code that imports them still works.
ALIASES = ("metrics", "normalise", "prototypes", "temperature")
