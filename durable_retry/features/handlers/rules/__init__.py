"""What the exceptions of libraries mean, and what may follow in a remembered step."""
