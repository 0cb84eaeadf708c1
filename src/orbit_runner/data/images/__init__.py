"""Images of any size in files: found, decoded, cropped, varied and brought to one size."""
