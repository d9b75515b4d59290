"""A plain decoder's forward as one call of compiled code (C++), for processors.

A row's bits are those of its history by construction: each sum has one fixed order, whatever
rows, threads or sessions share the forward, and whatever processor computes it.
"""
