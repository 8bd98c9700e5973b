"""The page of a campaign: what was predicted, ordered and measured, round by round."""
