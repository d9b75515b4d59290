"""What facts about a machine and its fleet mean: each check takes facts and finds out."""
