"""What people look at: progress, tables, pictures. The packages they need are imported when they are used."""
