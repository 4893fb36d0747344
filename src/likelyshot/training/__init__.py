"""Training encoders: supervised pre-training, then episodic fine-tuning with a metric.

Everything random follows from the seed of the run and the number of the step: a run that was killed goes on from
its last checkpoint and ends with the same weights.
"""
