"""What the ranks of a job are doing: reports for people and for programs, requests that are open.

Reads what contexts and proxies have; ``diagnose`` says what it means.
"""
