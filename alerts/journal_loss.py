"""Sentences about the loss where the journal's file, or the log beside it, can't be used.

Apart from the journal, for the list of files in the data folder needs no SQLite.
"""

FILE = "Acknowledgements, silences and messages that were not delivered are forgotten; alerts that fire are notified again."
LOG = "The last acknowledgements and silences may be forgotten; alerts that fire are notified again."
