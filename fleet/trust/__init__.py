"""Who belongs to a fleet: codes and invitations by which machines join."""
