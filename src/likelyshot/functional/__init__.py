"""Pure tensor functions: the mathematics that the methods are made of."""
