"""What tests share: models of hashes, scripted peers, naive references, whole nodes."""
