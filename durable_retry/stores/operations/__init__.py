"""What is stored of operations beside their histories."""
