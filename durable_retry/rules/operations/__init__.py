"""Operations: requests, keys, the idempotency record, status documents."""
