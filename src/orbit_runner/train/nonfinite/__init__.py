"""Steps that are not finite: noticing them, finding the first one, ending there or skipping it."""
