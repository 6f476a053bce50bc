"""SGLang 0.5.10 and newer: rules, canonical form, pre-flight, acceptance, exits, export.

The contract was read in and tried on 0.5.23. What differs between versions is discovered from
the installed program; where that is impossible, alias tables hold the older names. The adapter
is `tuner.engines.sglang.engine.SglangEngine`.
"""
