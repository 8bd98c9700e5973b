"""Values planned on the trie of visited prefixes, from remembered scores and a reward model."""
