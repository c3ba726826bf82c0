"""Learning online how much of the past to trust: forgetting rates as the outer variable of a bilevel problem."""
