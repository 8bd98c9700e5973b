"""Watching a run: alarms while it trains, and the doctor's diagnosis from its files.

Every finding says what was seen, what it means and what to do.
"""
