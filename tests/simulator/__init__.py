"""A Spark pair on one machine, real in everything but the GPU (see docs/simulator.md)."""
