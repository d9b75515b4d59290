"""Tensor links between nodes.

features/   what travels on them now: context vectors, from verifiers to proposers
transport/  links over gRPC: opened, served, and their messages on the wire
ends/       one end of a link: sends, receives, drives the roads
roads/      what carries bytes beside the stream: shared memory, a ring of two processes
protocol/   the contract and every decision, without wire types, sockets and tasks
"""
