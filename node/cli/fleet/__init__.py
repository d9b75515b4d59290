"""Commands about the fleet: `status`, `plan`, `leave`, `hostfile`, `dashboard`."""
