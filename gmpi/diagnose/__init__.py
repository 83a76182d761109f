"""Why a job stands still: from the tables of all ranks to likely causes, in words. Pure functions.

Imports nothing else of GMPI; ``observe`` fills the tables.
"""
