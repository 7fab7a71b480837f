"""Operations in storage and in the task hub: markers, commits, status, lists."""
