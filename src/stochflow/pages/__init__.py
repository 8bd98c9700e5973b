"""HTML pages that carry everything they need and load nothing."""
