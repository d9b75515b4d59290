"""Models' files between the disks of the fleet's machines."""
