"""Load: measurements (`meter`), decisions about what to shed (`controller`), and the loop that applies it
(`shedder`).
"""
