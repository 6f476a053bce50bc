"""Commands that print a table each: what the product costs, and whether it keeps its word."""
