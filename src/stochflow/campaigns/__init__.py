"""Campaigns: rounds of orders and measurements in a laboratory, kept in one file."""
