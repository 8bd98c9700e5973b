"""Several runs that differ in their seed alone, advanced as one program."""
