"""Local paths, URLs of object stores, and access to the stores."""
