"""Who chose what: sets of ratings, their split, and the pairs that training draws from them."""
