"""What a problem is made of: instantiate, trace, relate sizes, shrink, draw inputs, lint. It knows no source of problems."""
