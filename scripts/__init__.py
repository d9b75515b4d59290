"""Train, measure, draw, write: for developers, imported by no product code."""
