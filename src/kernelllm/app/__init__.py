"""The command line and the few functions that wire everything below into one path."""
