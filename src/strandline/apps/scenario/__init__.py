"""Scenario files: streams, events, the course of time and the snapshots that are expected, as text.

text ─ read ─ steps ─ play ─ outcomes ─ report
       text.py        play.py            report.py
"""
