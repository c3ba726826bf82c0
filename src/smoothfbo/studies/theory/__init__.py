"""The paper's statements, left side against right side, on problems where both are known."""
