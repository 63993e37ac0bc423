"""The electrical rules in a few words, by their number in docs/power.md."""

NO_CIRCUITS = "No circuits are configured. Will a breaker hold? kilowatch plan --breaker 20 --gpus '4x RTX 5090' --region US says so; to watch one, write [power.circuits.NAME] in the aggregator's settings."
"""Hint of every face where no breaker is known."""
WORDS = {
    "E01": "near its continuous limit",
    "E02": "above its continuous limit, which holds for 3 hours and more",
    "E03": "above what the breaker is rated for",
    "E04": "the breaker may trip soon, or is hot",
    "E05": "a peak can trip the breaker at once",
    "E06": "by its trend it reaches a limit",
    "E07": "the GPUs' limits in force allow more than the continuous limit",
    "E08": "above its limit when another element is lost",
    "E09": "this feed is lost: its partners carry its load",
    "E10": "two cords of a node share unevenly",
    "E11": "its poles are uneven",
    "E12": "the neutral is near its rating",
    "E13": "the voltage is too low or too high",
    "E14": "a UPS, transformer or source is near its rating, or on battery",
    "E15": "the load on the remaining supplies is near their rating",
    "E16": "near the limit of the smart plug",
    "E17": "its breaker has probably tripped",
    "E18": "its meter and its nodes do not agree",
    "E19": "a meter is silent, or wrong and not used",
    "E20": "GPUs may draw more than their cap",
    "E21": "its load swings",
    "E22": "near or above its budget",
    "E24": "the configuration is probably not as intended",
    "E25": "more than a fifth of its load is not heard, for want of members",
}
"""Meaning of each rule, in a few words."""


def rule_words(rule: str) -> str:
    """Return the meaning of a firing rule, with its number at the end."""
    return f"{WORDS[rule]} ({rule})" if rule in WORDS else rule
