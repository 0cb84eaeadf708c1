"""Local paths, URLs of object stores, access to the stores, local copies of remote files."""
