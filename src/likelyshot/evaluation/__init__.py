"""Methods over many tasks: one evaluation, a grid of parameters, the tables of the paper."""
