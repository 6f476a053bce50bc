"""The optimisation loop: suggest, launch, measure, judge, confirm."""
