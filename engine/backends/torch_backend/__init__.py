"""The torch back end."""
