"""Images of any size in files: listing, decoding, cropping, augmentation and resizing."""

# Of ImageNet's training images, as in Model Garden; in pixel values of 0 to 255.
NATURAL_MEAN = tuple(255 * value for value in (0.485, 0.456, 0.406))
NATURAL_STD = tuple(255 * value for value in (0.229, 0.224, 0.225))
