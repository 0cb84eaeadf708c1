"""Steps that are not finite: detecting them, finding the first, ending there or skipping it."""
