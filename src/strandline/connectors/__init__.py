"""Sources and sinks: how rows come in and how results go out."""
