"""The engines that bench/engine.py measures in turn, docmill's among them, each in a process.

One module an engine, run by the Python that has it (`make bench-peers` installs them) through
`python -m bench.engine_peers NAME`. May import the engines and the standard library.
"""
