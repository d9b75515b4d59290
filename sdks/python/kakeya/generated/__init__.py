"""Values and converters of the contract, made by `make stubs`: nothing here is written by hand."""
