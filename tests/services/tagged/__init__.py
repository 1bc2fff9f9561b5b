"""Tests of the tagged dialogue's text."""
