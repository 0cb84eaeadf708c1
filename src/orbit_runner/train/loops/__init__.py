"""The inner loops: their lengths, their input and their records."""
