"""The values and converters of both SDKs, written from the contract's descriptors and comments.

`shapes` says which messages are values, and where a value differs from its message;
`model` reads the contract by it; `python` and `typescript` write it down, `files` where.
"""
