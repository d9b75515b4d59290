"""OpenTelemetry traces of sessions: an extra, off unless `traces_endpoint` is configured."""
