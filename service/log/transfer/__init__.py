"""Taking a log elsewhere: export by day, import, backup."""
