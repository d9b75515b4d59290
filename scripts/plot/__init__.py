"""Pictures of reports and of the product."""
