"""One HTML page about a run or a comparison, from its files alone.

`reader` loads the files, `figures` draws, `page` puts the sections together; `html` has the page template. Imports
what stands before it, up to `experiments`.
"""
