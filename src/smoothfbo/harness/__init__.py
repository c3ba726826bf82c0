"""What every study shares and none owns: running, storing, measuring, drawing."""
