"""The contract of links and every decision of one: without wire types, sockets and tasks."""
