"""What the commands print: tables and pages for the terminal."""
