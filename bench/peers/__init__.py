"""The queues that people would use instead, each set up as its own pages recommend for speed.

They run in an environment of their own (`make bench-peers`), one module a library, and take part in
`bench/queue.py` through `python -m bench.peers`. May import the peers and the standard library.
"""
