"""The product for drifting tables: predict every row before its target is used, learn how much past to trust."""
