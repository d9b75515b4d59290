"""The command line: `fleet join`, `status`, `plan`, `generate`, `verify`, `bench`, `leave`.

One command a module, loaded when it is called; what they share is in modules
named after it (`connection`, `tables`, `timeline`, `quantities`, ...).
"""
