"""`fleet doctor`: collects the facts that `fleet.diagnosis` judges, one file a group of checks.

A further check is a file with `async def check(site) -> list[Finding]`, and its line in
`checks.CHECKS`.
"""
