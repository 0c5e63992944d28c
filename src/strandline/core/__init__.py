"""What every layer may use: errors, types, time, files that survive a crash, security, logging."""
