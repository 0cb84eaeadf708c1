"""Steps that are not finite: detecting them, finding the first one, ending there or skipping it."""
