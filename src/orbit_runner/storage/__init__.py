"""The file layer: what kind of place a path names, and access to object stores."""
