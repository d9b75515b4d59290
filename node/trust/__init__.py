"""A node's part in what its fleet trusts: certificates, keys in files, encrypted channels."""
