"""Images of any size in files: listing, decoding, cropping, augmentation and resizing."""
