"""Tables: columns of numbers and categories from files and arrays, parts by hash, a first look."""
